//! Streams of this program's own parts: defined in the log, shown in the catalogue, registered.

use std::sync::Arc;

use chappe_log::Level;
use chappe_stream::StreamSchema;

use crate::catalogue::{self, CatalogueError, Entry};
use crate::devices::of_stream;
use crate::shared::Shared;

/// A stream to be opened.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) name: String,
    pub(crate) schema: StreamSchema,
    /// The key of its source in the registry.
    pub(crate) source: String,
    /// Its durability, if not the default of the configuration.
    pub(crate) level: Option<Level>,
}

impl Opening {
    /// The stream, if it is open and registered with this source and schema.
    pub(crate) fn ready(&self, app: &Shared) -> Option<Arc<Entry>> {
        let entry = app.catalogue.get(&self.name)?;
        let is_same = entry.log.is_as(&self.schema, &self.source);
        let is_registered = app.registrar.is_registered(&catalogue::key(&self.name));
        (is_same && is_registered).then_some(entry)
    }

    /// Opens the stream and registers it. `may_take` says whether it may be one of another owner.
    ///
    /// # Errors
    /// The name belongs to another source, there are too many streams, or the log refuses.
    pub(crate) async fn open(
        &self,
        app: &Shared,
        may_take: impl Fn(&str) -> bool,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let Self {
            name,
            schema,
            source,
            level,
        } = self;
        let made = app
            .catalogue
            .create_or_take(name, schema, source, *level, may_take);
        let entry = made.await?;
        self.register(app).await;
        Ok(entry)
    }

    /// Registers the stream, unless the registry has it as it is.
    pub(crate) async fn register(&self, app: &Shared) {
        let entity = of_stream(&self.name, &self.schema, &self.source, None);
        app.registrar.publish(vec![entity]).await;
    }
}
