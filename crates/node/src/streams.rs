//! Streams written by parts of this program: defined in the log, added to the catalogue, registered.

use std::sync::Arc;

use chappe_log::Level;
use chappe_stream::StreamSchema;

use crate::catalogue::{CatalogueError, Entry};
use crate::producer::Producer;
use crate::shared::Shared;

/// The specification of a stream to open.
#[derive(Clone)]
pub(crate) struct StreamSpec {
    /// The name under which it is or was defined.
    pub(crate) name: String,
    pub(crate) schema: StreamSchema,
    /// The key of its source in the registry.
    pub(crate) source: String,
    /// The durability level; `None`: the configured default.
    pub(crate) level: Option<Level>,
}

impl StreamSpec {
    /// The stream, if it is already open and registered with this source and schema.
    pub(crate) fn existing(&self, app: &Shared) -> Option<Arc<Entry>> {
        let entry = app.catalogue.get(&self.name)?;
        let is_same = entry.log.is_as(&self.schema, &self.source);
        let is_registered = app.registrar.is_registered(&entry.key());
        (is_same && is_registered).then_some(entry)
    }

    /// The specification of the stream of this source that was renamed so, or the same.
    pub(crate) fn of_renamed(mut self, app: &Shared) -> Self {
        let renamed = app.catalogue.get(&self.name);
        if let Some(entry) = renamed.filter(|entry| entry.source() == self.source) {
            self.name.clone_from(&entry.name);
        }
        self
    }

    /// Opens the stream and registers it, taking it over from another owner if `may_take` accepts it.
    ///
    /// # Errors
    /// The name belongs to another source, there are too many streams, or the log failed.
    pub(crate) async fn open(
        &self,
        app: &Shared,
        may_take: impl Fn(&str) -> bool,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let entry = self.define_or_take(app, may_take).await?;
        self.register(app).await;
        Ok(entry)
    }

    /// Opens the stream without registering it.
    ///
    /// # Errors
    /// The name belongs to another source, there are too many streams, or the log failed.
    pub(crate) async fn define(&self, app: &Shared) -> Result<Arc<Entry>, CatalogueError> {
        self.define_or_take(app, |_| false).await
    }

    /// Opens the stream without registering it, taking it over from another owner if `may_take` accepts it.
    ///
    /// # Errors
    /// The name belongs to another source, there are too many streams, or the log failed.
    pub(crate) async fn define_or_take(
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
        let created = app
            .catalogue
            .create_or_take(name, schema, source, *level, may_take);
        created.await
    }

    /// Registers the stream, unless it is unchanged in the registry.
    pub(crate) async fn register(&self, app: &Shared) {
        let entity = Producer::new(&self.source).stream(&self.name, &self.schema, None);
        app.registrar.publish(vec![entity]).await;
    }
}
