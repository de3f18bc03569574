//! Elements of a device on their way into the log: several batches at a time, each stream's in their
//! order, with a bound beyond which the device waits for its answer.
//!
//! While the disk is full the device waits too. A batch that is refused then is offered again, and none
//! that came after it is stored before it: the log takes a batch only if it has refused nothing since
//! those before it were offered. What cannot be stored at all is counted as lost, with the reason.
//!
//! A stream is not removed while its device is here. Should it be nevertheless, it is defined again, and
//! the elements that wait are stored there.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use chappe_log::{Appended, Error, Store};
use chappe_stream::{StoreError, StreamElement, Value};

use crate::catalogue::{CatalogueError, Entry, FULL_PAUSE};
use crate::shared::App;

/// Elements of one device on their way to the disk; with more it waits. Reason: 1,000 elements a second
/// pass syncs of half a second, and as many while one is waited for.
const ELEMENTS_MAX: usize = 2_048;
/// Bytes of them; reason: a quarter of what the log queues for all, so that one device that sends a lot
/// leaves room for others.
const BYTES_MAX: usize = 1 << 20;
/// Bytes of an element besides its values: times, position, and what holds them.
const ELEMENT_BYTES: usize = 128;

/// What was taken from a device and is not known to be stored.
pub(super) struct Output {
    store: Store,
    /// Oldest first: those that the log has, then those that it is still to be offered.
    under_way: VecDeque<Batch>,
    elements: usize,
    bytes: usize,
    /// How often the log had refused something when the oldest batch was offered.
    taken_back: u64,
    /// Whether nothing waits for room on a full disk any more.
    gives_up: Box<dyn Fn() -> bool + Send + Sync>,
    count_lost: Box<CountLost>,
    define_again: Box<DefineAgain>,
}

/// Defines a stream again that was removed.
type DefineAgain = dyn Fn(Arc<Entry>) -> Defined + Send + Sync;
type Defined = Pin<Box<dyn Future<Output = Result<Arc<Entry>, CatalogueError>> + Send>>;

/// Counts elements of a stream that will never be stored, with the reason and its details.
type CountLost = dyn Fn(&Entry, u64, &'static str, &str) + Send + Sync;

/// Elements of one stream.
struct Batch {
    entry: Arc<Entry>,
    elements: Vec<StreamElement>,
    /// Elements and bytes as they were counted when they came.
    counted: (usize, usize),
    appended: Option<Appended>,
}

impl Output {
    /// For a device that is no longer waited for when `is_cut` is set.
    pub(super) fn new(app: &App, is_cut: Arc<AtomicBool>) -> Self {
        let (of_drain, of_again) = (app.clone(), app.clone());
        let observability = app.observability.clone();
        Self::with(
            app.storage.log.clone(),
            move || *of_drain.drain.borrow() || is_cut.load(Ordering::Relaxed),
            move |entry, count, reason, detail| {
                observability.lost(&entry.name, count, reason, detail);
            },
            move |entry| {
                let app = of_again.clone();
                Box::pin(async move { app.catalogue.define_again(&entry).await })
            },
        )
    }

    fn with(
        store: Store,
        gives_up: impl Fn() -> bool + Send + Sync + 'static,
        count_lost: impl Fn(&Entry, u64, &'static str, &str) + Send + Sync + 'static,
        define_again: impl Fn(Arc<Entry>) -> Defined + Send + Sync + 'static,
    ) -> Self {
        Self {
            taken_back: store.retractions(),
            store,
            under_way: VecDeque::new(),
            elements: 0,
            bytes: 0,
            gives_up: Box::new(gives_up),
            count_lost: Box::new(count_lost),
            define_again: Box::new(define_again),
        }
    }

    /// The newest element of a stream that is under way.
    pub(super) fn newest(&self, entry: &Arc<Entry>) -> Option<&StreamElement> {
        let mut newest_first = self.under_way.iter().rev();
        let batch = newest_first.find(|batch| Arc::ptr_eq(&batch.entry, entry));
        batch.and_then(|batch| batch.elements.last())
    }

    /// Hands elements of one stream to the log. Waits while too much is under way, and while the log
    /// takes nothing.
    pub(super) async fn store(&mut self, entry: Arc<Entry>, elements: Vec<StreamElement>) {
        if elements.is_empty() {
            return;
        }
        let counted = (elements.len(), elements.iter().map(bytes_of).sum());
        while !self.under_way.is_empty() && !self.has_room(counted) {
            self.settle_first().await;
        }
        self.elements += counted.0;
        self.bytes += counted.1;
        self.under_way.push_back(Batch {
            entry,
            elements,
            counted,
            appended: None,
        });
        self.offer().await;
    }

    fn has_room(&self, (elements, bytes): (usize, usize)) -> bool {
        self.elements + elements <= ELEMENTS_MAX && self.bytes + bytes <= BYTES_MAX
    }

    /// Resolves when there is something for [`Output::settle`]; never while nothing is under way. It may
    /// be dropped.
    pub(super) async fn settled(&mut self) {
        poll_fn(|context| match self.under_way.front_mut() {
            None => Poll::Pending,
            Some(first) => match &mut first.appended {
                None => Poll::Ready(()),
                Some(appended) => Pin::new(appended).poll(context).map(drop),
            },
        })
        .await;
    }

    /// Notes what has become of batches; waits only where one was refused.
    pub(super) async fn settle(&mut self) {
        let is_settled = |first: &Batch| match &first.appended {
            Some(appended) => appended.try_result().is_some(),
            None => true,
        };
        while self.under_way.front().is_some_and(is_settled) {
            self.settle_first().await;
        }
    }

    /// Waits until all is stored, or lost and counted.
    pub(super) async fn drain(&mut self) {
        while !self.under_way.is_empty() {
            self.settle_first().await;
        }
    }

    /// Waits until the first batch is stored, or lost and counted.
    async fn settle_first(&mut self) {
        while let Some(first) = self.under_way.front_mut() {
            let Some(appended) = &mut first.appended else {
                self.offer().await;
                continue;
            };
            match appended.await {
                Ok(()) => return self.remove(0),
                Err(Error::Full { .. }) if !(self.gives_up)() => self.take_back().await,
                Err(Error::Removed { .. }) => self.define_again(0).await,
                Err(error) => return self.lose(0, "not acknowledged", &error.to_string()),
            }
        }
    }

    /// The first batch was refused: what the log has not stored is offered again after a pause.
    async fn take_back(&mut self) {
        let mut index = 0;
        while let Some(batch) = self.under_way.get_mut(index) {
            let outcome = match &mut batch.appended {
                Some(appended) => appended.await,
                None => break,
            };
            match outcome {
                Ok(()) => self.remove(index),
                Err(Error::Full { .. }) if !(self.gives_up)() => {
                    self.under_way[index].appended = None;
                    index += 1;
                }
                Err(Error::Removed { .. }) => self.define_again(index).await,
                Err(error) => self.lose(index, "not acknowledged", &error.to_string()),
            }
        }
        tokio::time::sleep(FULL_PAUSE).await;
    }

    /// Offers to the log what it does not have, in order, as long as it refuses nothing.
    async fn offer(&mut self) {
        let is_open = |batch: &Batch| batch.appended.is_none();
        while let Some(index) = self.under_way.iter().position(is_open) {
            let batch = &mut self.under_way[index];
            let taken_back = self.taken_back;
            match batch.entry.append_after(taken_back, &batch.elements).await {
                Ok(appended) => batch.appended = Some(appended),
                Err(StoreError::Log(Error::Retracted { .. })) if index == 0 => {
                    self.taken_back = self.store.retractions();
                }
                // Perhaps one of those before it: they are waited for first.
                Err(StoreError::Log(Error::Retracted { .. })) => return,
                Err(StoreError::Element { index: at, error }) if at < batch.elements.len() => {
                    batch.elements.remove(at);
                    let (entry, error) = (batch.entry.clone(), error.to_string());
                    if batch.elements.is_empty() {
                        self.remove(index);
                    }
                    (self.count_lost)(&entry, 1, "does not fit", &error);
                }
                Err(StoreError::Log(Error::Full { .. })) if !(self.gives_up)() => {
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Err(StoreError::Log(Error::Removed { .. })) => self.define_again(index).await,
                Err(error) => self.lose(index, "not stored", &error.to_string()),
            }
        }
    }

    /// The stream of this batch was removed: it is defined again, and what it did not take is offered
    /// there, in order.
    async fn define_again(&mut self, index: usize) {
        let Some(removed) = self.under_way.get(index).map(|batch| batch.entry.clone()) else {
            return;
        };
        let entry = match (self.define_again)(removed.clone()).await {
            Err(CatalogueError::Store(StoreError::Log(Error::Full { .. })))
                if !(self.gives_up)() =>
            {
                // It is tried again when this batch is.
                tokio::time::sleep(FULL_PAUSE).await;
                Ok(removed.clone())
            }
            entry => entry,
        };
        match entry {
            Ok(entry) => {
                let is_of_it = |batch: &&mut Batch| Arc::ptr_eq(&batch.entry, &removed);
                for batch in self.under_way.iter_mut().skip(index).filter(is_of_it) {
                    batch.entry = entry.clone();
                    batch.appended = None;
                }
            }
            Err(error) => self.lose(index, "no stream", &error.to_string()),
        }
    }

    fn remove(&mut self, index: usize) {
        if let Some(batch) = self.under_way.remove(index) {
            self.elements -= batch.counted.0;
            self.bytes -= batch.counted.1;
        }
    }

    fn lose(&mut self, index: usize, reason: &'static str, detail: &str) {
        if let Some(batch) = self.under_way.get(index) {
            (self.count_lost)(&batch.entry, batch.elements.len() as u64, reason, detail);
        }
        self.remove(index);
    }
}

/// About as much memory as it takes.
fn bytes_of(element: &StreamElement) -> usize {
    let of_value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Samples(samples) => 8 * samples.values.len(),
        _ => 0,
    };
    let values = element.values.iter().map(of_value).sum::<usize>();
    ELEMENT_BYTES + values + size_of_val(element.values.as_slice())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use chappe_log::{Level, Options};
    use chappe_sim::SimDisk;
    use chappe_stream::{Field, FieldType, Position, StreamSchema, Timestamp};

    use super::*;
    use crate::catalogue::Catalogue;
    use crate::config::Config;

    /// How often the disk becomes full, and how many elements of each stream come meanwhile.
    const ROUNDS: i64 = 4;
    const IN_ROUND: i64 = 40;

    struct World {
        disk: SimDisk,
        store: Store,
        catalogue: Arc<Catalogue>,
        entries: [Arc<Entry>; 2],
        output: Output,
        gives_up: Arc<AtomicBool>,
        lost: Arc<Mutex<u64>>,
    }

    fn world() -> World {
        world_with_reserve(0)
    }

    fn world_with_reserve(reserve_bytes: u64) -> World {
        let disk = SimDisk::new(1);
        let options = Options {
            reserve_bytes,
            full_poll: Duration::from_millis(1),
            full_polls: 2,
            ..Options::default()
        };
        let (store, _) = Store::open(Box::new(disk.clone()), options, 1).unwrap();
        let catalogue = Catalogue::open(store.clone(), Level::Power, &Config::default());
        let catalogue = Arc::new(catalogue.unwrap());
        let schema = StreamSchema {
            fields: vec![Field {
                name: "n".into(),
                field_type: FieldType::Integer,
                unit: None,
                observed_property: None,
                description: None,
            }],
            key: None,
        };
        let entry = |name| {
            let made = catalogue.create_blocking(name, &schema, "device", None);
            made.unwrap()
        };
        let (gives_up, lost) = (Arc::<AtomicBool>::default(), Arc::<Mutex<u64>>::default());
        let (giving_up, counting) = (gives_up.clone(), lost.clone());
        let defining = catalogue.clone();
        World {
            entries: [entry("a"), entry("b")],
            output: Output::with(
                store.clone(),
                move || giving_up.load(Ordering::Relaxed),
                move |_, count, _, _| *counting.lock().unwrap() += count,
                move |entry| {
                    let catalogue = defining.clone();
                    Box::pin(async move { catalogue.define_again(&entry).await })
                },
            ),
            catalogue,
            disk,
            store,
            gives_up,
            lost,
        }
    }

    fn element(number: i64) -> StreamElement {
        StreamElement {
            position: Position::default(),
            source_time: Timestamp(number),
            receive_time: Timestamp(number),
            key: None,
            values: vec![Value::Integer(number)],
            quality: Default::default(),
            origin: None,
        }
    }

    fn stored(entry: &Entry) -> Vec<i64> {
        let all = entry.log.newest(usize::MAX).unwrap();
        all.iter().map(|element| element.source_time.0).collect()
    }

    fn block(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let limited = async { tokio::time::timeout(Duration::from_secs(300), future).await };
        runtime
            .unwrap()
            .block_on(limited)
            .expect("it takes far too long");
    }

    /// Waits until the log has refused something since it had refused so much.
    async fn refused(store: &Store, before: u64) {
        while store.retractions() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[test]
    fn a_full_disk_changes_no_order_and_loses_nothing() {
        block(async {
            let mut world = world();
            for round in 0..ROUNDS {
                let (store, disk) = (world.store.clone(), world.disk.clone());
                let before = store.retractions();
                disk.set_capacity(disk.used());
                let coming = async {
                    for number in round * IN_ROUND..(round + 1) * IN_ROUND {
                        for entry in &world.entries {
                            let elements = vec![element(number)];
                            world.output.store(entry.clone(), elements).await;
                        }
                        tokio::task::yield_now().await;
                    }
                    // Later ones were offered while the first were not known to be refused.
                    world.output.settle().await;
                };
                let healing = async {
                    refused(&store, before).await;
                    disk.set_capacity(u64::MAX);
                };
                tokio::join!(coming, healing);
                // The next round begins when the log has seen that there is room.
                world.output.drain().await;
            }
            for entry in &world.entries {
                let all: Vec<i64> = (0..ROUNDS * IN_ROUND).collect();
                assert_eq!(stored(entry), all);
            }
            assert_eq!(*world.lost.lock().unwrap(), 0);
        });
    }

    #[test]
    fn what_is_given_up_while_the_disk_is_full_is_counted() {
        block(async {
            let mut world = world();
            let [entry, _] = &world.entries;
            for number in 0..10 {
                world
                    .output
                    .store(entry.clone(), vec![element(number)])
                    .await;
            }
            world.output.drain().await;
            let before = world.store.retractions();
            world.disk.set_capacity(world.disk.used());
            let coming = async {
                for number in 10..30 {
                    world
                        .output
                        .store(entry.clone(), vec![element(number)])
                        .await;
                }
                world.output.drain().await;
            };
            let cutting = async {
                refused(&world.store, before).await;
                world.gives_up.store(true, Ordering::Relaxed);
            };
            tokio::join!(coming, cutting);
            assert_eq!(stored(entry), Vec::from_iter(0..10));
            assert_eq!(*world.lost.lock().unwrap(), 20);
        });
    }

    #[test]
    fn elements_that_wait_while_their_stream_is_removed_are_stored_in_the_next_one() {
        block(async {
            // A removal may use the reserve.
            let mut world = world_with_reserve(3_000);
            let [a, b] = world.entries.clone();
            for number in 0..10 {
                world.output.store(a.clone(), vec![element(number)]).await;
            }
            world.output.drain().await;
            // On a full disk elements wait in the log's queue, and the removal overtakes them.
            let before = world.store.retractions();
            world.disk.set_capacity(world.disk.used() + 2_990);
            let removing = async {
                refused(&world.store, before).await;
                let catalogue = world.catalogue.clone();
                let removed = tokio::task::spawn_blocking(move || catalogue.remove_written("a"));
                removed.await.unwrap();
                world.disk.set_capacity(u64::MAX);
            };
            let coming = async {
                for number in 10..30 {
                    world.output.store(a.clone(), vec![element(number)]).await;
                    world.output.store(b.clone(), vec![element(number)]).await;
                }
                world.output.drain().await;
            };
            tokio::join!(coming, removing);
            let again = world.catalogue.get("a").unwrap();
            assert_ne!(again.log.log().epoch(), a.log.log().epoch());
            assert_eq!(again.source(), a.source());
            assert_eq!(stored(&again), Vec::from_iter(10..30));
            assert_eq!(stored(&b), Vec::from_iter(10..30));
            assert_eq!(*world.lost.lock().unwrap(), 0);
            // A writer that still has the former stream goes on in the next one, too.
            world.output.store(a.clone(), vec![element(30)]).await;
            world.output.drain().await;
            assert_eq!(stored(&again), Vec::from_iter(10..31));
        });
    }
}
