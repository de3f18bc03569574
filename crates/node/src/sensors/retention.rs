//! Lets go of a stream's old elements, as its descriptor says.

use std::sync::Arc;
use std::time::Duration;

use chappe_stream::descriptor::Retention;
use chappe_stream::{StoreError, StreamLog, Timestamp};

use crate::catalogue::Entry;
use crate::clock;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(10);
/// Elements that may be too old before they are let go together; reason: each mark is a write.
const SLACK: u64 = 100;

/// Keeps the stream within its bounds as long as it runs.
pub(super) async fn keep(entry: Arc<Entry>, retention: Retention) {
    if retention == Retention::default() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(PERIOD).await;
        let log = entry.log.clone();
        let now = clock::now();
        let found = tokio::task::spawn_blocking(move || first_kept(&log, retention, now)).await;
        let trimmed = match found {
            Ok(Ok(Some(first))) => match entry.log.log().trim(first) {
                Ok(trimmed) => trimmed.await.map_err(StoreError::Log),
                Err(error) => Err(StoreError::Log(error)),
            },
            Ok(Ok(None)) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(error),
        };
        if let Err(error) = trimmed {
            tracing::warn!(stream = entry.name, %error, "old elements could not be let go");
        }
    }
}

/// The first number that is to be kept, when enough before it can go.
fn first_kept(
    log: &StreamLog,
    retention: Retention,
    now: Timestamp,
) -> Result<Option<u64>, StoreError> {
    let (first, last) = (log.log().first(), log.log().last());
    let mut kept = first;
    if let Some(count) = retention.elements {
        kept = kept.max((last + 1).saturating_sub(count));
    }
    if let Some(age) = retention.age {
        let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        let since = Timestamp(now.0.saturating_sub(age));
        let young = log.range(since, Timestamp(i64::MAX), 1)?;
        let young = young.first().map(|element| element.position.sequence);
        kept = kept.max(young.unwrap_or(last + 1));
    }
    Ok((kept >= first + SLACK).then_some(kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{Level, Options, Store};
    use chappe_stream::{StreamElement, StreamSchema, StreamStore};

    #[test]
    fn count_and_age_bound_what_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let disk = chappe_transport::FileDisk::open(directory.path()).unwrap();
        let (store, _) = Store::open(Box::new(disk), Options::default(), 1).unwrap();
        let store = StreamStore::new(store);
        let log = store.stream("a", Level::Process, &StreamSchema::default(), None);
        let log = log.unwrap();
        let elements: Vec<StreamElement> = (1..=1_000)
            .map(|second| StreamElement {
                position: Default::default(),
                source_time: Timestamp(second * 1_000_000_000),
                receive_time: Timestamp(0),
                key: None,
                values: Vec::new(),
                quality: Default::default(),
            })
            .collect();
        log.append(&elements).unwrap().wait().unwrap();
        let now = Timestamp(1_001_000_000_000);
        let kept = |elements, age_s: Option<u64>| {
            let age = age_s.map(Duration::from_secs);
            first_kept(&log, Retention { elements, age }, now).unwrap()
        };
        assert_eq!(kept(Some(300), None), Some(701));
        assert_eq!(kept(Some(950), None), None, "too few to be worth a mark");
        assert_eq!(kept(None, Some(11)), Some(990));
        assert_eq!(kept(Some(300), Some(500)), Some(701));
        assert_eq!(kept(None, Some(0)), Some(1_001));
        log.log().trim(701).unwrap().wait().unwrap();
        assert_eq!(kept(Some(300), None), None);
        assert_eq!(log.read(0, 1).unwrap()[0].position.sequence, 701);
    }
}
