//! A device on the network.

use chappe_xml::Name;
use tokio::sync::Mutex;

use super::{Description, connect};
use crate::host::Change;
use crate::service::Service;
use crate::{DeviceHost, Error, Key};

/// A device on the network. Dropping it ends it at once, like a power cut; [`RunningDevice::stop`]
/// ends the subscriptions and says Bye first.
///
/// Each change of its description raises MetadataVersion, stored beside its key, and says Hello, so
/// that clients read the description again.
#[derive(Debug)]
pub struct RunningDevice {
    host: DeviceHost,
    key: Key,
    description: Mutex<Description>,
}

impl RunningDevice {
    pub(super) fn new(host: DeviceHost, key: Key, description: Description) -> Self {
        Self {
            host,
            key,
            description: Mutex::new(description),
        }
    }

    /// Its host, for addresses, load and drops.
    #[must_use]
    pub fn host(&self) -> &DeviceHost {
        &self.host
    }

    /// Changes its name.
    ///
    /// # Errors
    /// The new description cannot be used, its version cannot be stored, or the device is stopped.
    pub async fn set_name(&self, name: &str) -> Result<(), Error> {
        let name = vec![name.into()];
        self.set(|it| &mut it.device.friendly_name, name).await
    }

    /// Replaces its scopes.
    ///
    /// # Errors
    /// As [`RunningDevice::set_name`].
    pub async fn set_scopes<S: Into<String>>(
        &self,
        scopes: impl IntoIterator<Item = S>,
    ) -> Result<(), Error> {
        let scopes = scopes.into_iter().map(Into::into).collect();
        self.set(|it| &mut it.scopes, scopes).await
    }

    /// Replaces its types.
    ///
    /// # Errors
    /// As [`RunningDevice::set_name`].
    pub async fn set_types(&self, types: impl IntoIterator<Item = Name>) -> Result<(), Error> {
        let types = types.into_iter().collect();
        self.set(|it| &mut it.types, types).await
    }

    /// Replaces a part of the description, unless the new one cannot be used.
    async fn set<T>(&self, part: fn(&mut Description) -> &mut T, value: T) -> Result<(), Error> {
        let mut description = self.description.lock().await;
        let before = std::mem::replace(part(&mut description), value);
        let changed = self.changed(&description).await;
        if changed.is_err() {
            *part(&mut description) = before;
        }
        changed
    }

    /// Adds a service.
    ///
    /// # Errors
    /// As [`RunningDevice::set_name`], or the service is not unique; then nothing changes.
    pub async fn add_service(&self, service: Service) -> Result<(), Error> {
        let mut description = self.description.lock().await;
        description.services.push(service);
        let connected = description.check().and_then(|checked| {
            let new = checked.outlets.len() - 1;
            connect(&checked.outlets[new..], &self.host)
        });
        if let Err(error) = connected {
            description.services.pop();
            return Err(error);
        }
        self.changed(&description).await
    }

    /// Removes the service of this name, and ends the subscriptions to its events; `false` if there is
    /// none. Its events can be sent still, to nobody.
    ///
    /// # Errors
    /// As [`RunningDevice::set_name`].
    pub async fn remove_service(&self, name: &str) -> Result<bool, Error> {
        let mut description = self.description.lock().await;
        let before = description.services.len();
        description
            .services
            .retain(|service| service.name() != name);
        if description.services.len() == before {
            return Ok(false);
        }
        self.changed(&description).await?;
        Ok(true)
    }

    /// Ends the subscriptions, stops serving, and says Bye.
    pub async fn stop(self) {
        self.host.stop().await;
    }

    /// Gives the host the changed description, if it differs.
    async fn changed(&self, description: &Description) -> Result<(), Error> {
        let checked = description.check()?;
        let metadata_version = self.key.version(checked.digest)?;
        if metadata_version == self.host.announcement().metadata_version {
            return Ok(());
        }
        let change = Change {
            device: description.device.clone(),
            types: description.all_types(&checked),
            scopes: description.scopes.clone(),
            services: checked.hosted,
            operations: checked.operations,
            metadata_version,
        };
        self.host.change(change).await
    }
}
