//! Charges the elements of a followed device to its quota.

use chappe_wrappers::dpws::AttachmentEvent;
use tokio::time::Instant;

use super::quota::Quota;
use crate::metrics::QuotaLabel;
use crate::shared::App;

/// The quota of a followed device; returned to the shared table when this is dropped.
pub(super) struct ChargedQuota {
    app: App,
    key: String,
    quota: Quota,
}

impl ChargedQuota {
    pub(super) fn new(app: &App, key: &str) -> Self {
        Self {
            app: app.clone(),
            key: key.to_owned(),
            quota: app.devices.quotas.enter(key, Instant::now()),
        }
    }

    /// Charges the elements read from the device, each notification before the next is read.
    pub(super) fn charge(&mut self, yields: &[AttachmentEvent]) {
        let elements = || {
            yields.iter().filter_map(|one| match one {
                AttachmentEvent::Element(_, element) | AttachmentEvent::Current(_, element) => {
                    Some(element)
                }
                _ => None,
            })
        };
        let bytes = elements().map(|element| element.size_bytes() as u64).sum();
        self.quota
            .charge(Instant::now(), elements().count() as u64, bytes);
        if let Some(quota) = self.quota.pausing() {
            let slowed = &self.app.observability.metrics.devices_slowed;
            slowed.get_or_create(&QuotaLabel { quota }).inc();
        }
    }
}

impl Drop for ChargedQuota {
    fn drop(&mut self) {
        self.app.devices.quotas.leave(&self.key, &self.quota);
    }
}

impl std::ops::Deref for ChargedQuota {
    type Target = Quota;

    fn deref(&self) -> &Quota {
        &self.quota
    }
}

impl std::ops::DerefMut for ChargedQuota {
    fn deref_mut(&mut self) -> &mut Quota {
        &mut self.quota
    }
}
