//! The exporter of kind `gsn-zeromq-async`: a PUB socket and a directory, for GSN's `zeromq-async`.

use bytes::Bytes;
use chappe_gsn::exchange::write_publication;
use chappe_gsn::mapping;
use chappe_stream::DescriptorError;
use chappe_transport::Drops;
use chappe_transport::zeromq::{Message, Publisher, Security};
use schemars::JsonSchema;
use serde::Deserialize;

use super::directory::{Directory, Structures, failed};
use super::{check_endpoint, limits};
use crate::{
    Batch, Exporter, ExporterFile, ExporterKind, ExporterOpening, Refused, Step, WrapperError,
    Written,
};

/// The kind.
pub(crate) const ASYNC_EXPORTER: ExporterKind = ExporterKind {
    name: "gsn-zeromq-async",
    about: "publishes elements for the zeromq-async wrappers of GSN 2 servers",
    written: "it is queued for the servers that are connected; others miss it",
    may_double: "after a restart of this node, for servers that connect quickly",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The keys of an exporter of kind `gsn-zeromq-async`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Where to publish, `tcp://HOST:PORT`: GSN's `address` and `data_port`.
    listen: String,
    /// Where the servers ask for structures, `tcp://HOST:PORT`: GSN's `meta_port`.
    directory: String,
    /// Allow endpoints beyond this machine, without encryption. Default: false.
    #[serde(default)]
    insecure: bool,
}

fn settings(file: &ExporterFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    check_endpoint(file, "listen", &settings.listen, settings.insecure)?;
    check_endpoint(file, "directory", &settings.directory, settings.insecure)?;
    Ok(settings)
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let settings =
        settings(opening.file).map_err(|error| WrapperError::settings(error.to_string()))?;
    Ok(Box::new(Publication {
        settings,
        structures: Structures::default(),
        drops: opening.drops,
        sockets: None,
    }))
}

struct Publication {
    settings: Settings,
    structures: Structures,
    drops: Drops,
    sockets: Option<(Publisher, Directory)>,
}

impl Exporter for Publication {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async {
            self.structures.learn(batch);
            let publisher = self.publisher().await?;
            let mut written = Written::default();
            for part in &batch.parts {
                let schema = &part.definition.schema;
                for element in &part.elements {
                    let gsn = mapping::to_gsn(element, schema).map_err(|error| error.to_string());
                    let frame = gsn.and_then(|gsn| {
                        write_publication(&part.stream, &gsn).map_err(|error| error.to_string())
                    });
                    match frame {
                        Ok(frame) => {
                            publisher.publish_message(&Message::new(Bytes::from(frame)));
                        }
                        Err(reason) => written.refused.push(Refused {
                            stream: part.stream.to_string(),
                            position: element.position,
                            reason,
                        }),
                    }
                }
            }
            Ok(written)
        })
    }
}

impl Publication {
    async fn publisher(&mut self) -> Result<Publisher, WrapperError> {
        if let Some((publisher, _)) = &self.sockets {
            return Ok(publisher.clone());
        }
        let drops = self.drops.clone();
        let Settings {
            listen, directory, ..
        } = &self.settings;
        let bound = Publisher::bind(listen, Security::NullFrom2, limits(), drops.clone()).await;
        let publisher = bound.map_err(|error| failed(&error))?;
        let structures = self.structures.clone();
        let directory = Directory::start(directory, None, structures, drops).await?;
        self.sockets = Some((publisher.clone(), directory));
        Ok(publisher)
    }
}
