//! Metrics of what accounts use of the node.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use super::registry::Registry;

use crate::accounts::{Accounts, Shares};
use crate::catalogue::Catalogue;
use crate::permits::{Permits, RequestKind};

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AccountLabel {
    account: String,
}

/// An account, and a kind of its requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestsLabels {
    account: String,
    kind: &'static str,
}

/// What accounts with a share use, filled at each scrape. A node has at most a thousand accounts.
#[derive(Debug, Default)]
pub(crate) struct AccountMetrics {
    bytes: Family<AccountLabel, Gauge>,
    streams: Family<AccountLabel, Gauge>,
    requests: Family<RequestsLabels, Gauge>,
}

impl AccountMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let text = "Data in the log that counts toward the share of an account";
        r.register_with_unit("account_log", text, Unit::Bytes, self.bytes.clone());
        let text = "Streams that count toward the share of an account";
        r.register("account_streams", text, self.streams.clone());
        let text = "Concurrent requests of an account by kind";
        r.register("account_requests", text, self.requests.clone());
    }

    /// Replaces all values.
    pub(crate) fn measure(
        &self,
        accounts: &Accounts,
        shares: &Shares,
        catalogue: &Catalogue,
        permits: &Permits,
    ) {
        self.bytes.clear();
        self.streams.clear();
        self.requests.clear();
        let used = shares.used_bytes();
        let definitions = shares.all_definitions(catalogue);
        for account in accounts.all().iter() {
            let name = &account.name;
            let bytes = used.get(name).copied().unwrap_or_default();
            let count = definitions.get(name).map_or(0, |it| it.streams);
            if shares.of(account).is_none() || account.revoked_at.is_some() && count == 0 {
                continue;
            }
            let label = AccountLabel {
                account: name.clone(),
            };
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.bytes.get_or_create(&label).set(bytes);
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.streams.get_or_create(&label).set(count);
            for kind in RequestKind::ALL {
                let labels = RequestsLabels {
                    account: name.clone(),
                    kind: kind.name(),
                };
                let held = permits.held_by(name, kind);
                let held = i64::try_from(held).unwrap_or(i64::MAX);
                self.requests.get_or_create(&labels).set(held);
            }
        }
    }
}
