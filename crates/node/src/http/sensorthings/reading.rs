//! Reads observations from the log: a page costs about what its elements cost, whatever the length of the stream.
//!
//! Without an order, observations are in that of their datastreams and numbers, and a page starts at a
//! number. By time, windows of time are read one after the other from the wanted end, each sorted, until the page
//! is full; the log's index finds their elements. Any other order reads all that may match, and keeps
//! the best after the last of the page before.

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::time::Instant;

use chappe_sensorthings::{
    Entity, EntityScope, EntityType, Expression, Fault, Link, Observations, ObservationsOf, Order,
    Resume, Scope, Source, Value, Wanted, equal_text, is_true, time_bounds,
};
use chappe_stream::{Position, Scan, StoreError, StreamElement, StreamSchema, Timestamp};

use super::LIMITS;
use super::snapshot::Snapshot;
use super::streams::{Datastream, parse_observation_id};

/// Observations that are sorted at once; reason: they are in memory.
const SORTED_MAX: usize = 100_000;
/// Bytes of observations that are held to sort them; reason: twice the most that [`SORTED_MAX`] of one number take.
const SORTED_BYTES_MAX: usize = 64 << 20;
/// Elements of one piece of a scan.
const PIECE: usize = 1_024;
/// How much wider than estimated the first window of time is; reason: most pages need one then.
const FIRST_WINDOW: i128 = 2;

/// Observations of a window, as a multiple of those that the page needs, above which a narrower one is read instead;
/// reason: after a pause the window is as wide as the pause.
const CROWDED: usize = 4;
/// How much narrower that one is.
const NARROWER: i128 = 8;

/// The widest window in nanoseconds: more than all times there are.
const WIDEST: i128 = 1 << 65;

/// The entities of a request that reads.
pub(super) struct Reading {
    pub(super) snapshot: Snapshot,
    /// When reading stops.
    pub(super) deadline: Instant,
    /// Elements that were read.
    pub(super) elements_read: Cell<u64>,
    /// Set when nobody waits for the answer any more.
    pub(super) is_abandoned: Arc<AtomicBool>,
}

/// An observation in a place of the order of time.
struct Found {
    time: i64,
    /// The place of its datastream among those that are read.
    stream: usize,
    sequence: u64,
    entity: Arc<Entity>,
    /// Bytes that it takes in memory, about.
    bytes: usize,
}

/// Where a page in the order of time ended: time, id of the datastream, number.
struct TimeToken<'a> {
    time: i64,
    datastream: &'a str,
    sequence: u64,
}

/// A set of observations that is read.
struct Set<'a> {
    streams: Vec<Arc<Datastream>>,
    /// The feature that they are of.
    feature: Option<&'a str>,
    filter: Option<&'a Expression>,
    now: Timestamp,
}

impl Source for Reading {
    fn all(&self, kind: EntityType) -> Result<Vec<Arc<Entity>>, Fault> {
        Ok(self.snapshot.all(kind))
    }

    fn get(&self, kind: EntityType, id: &str) -> Result<Option<Arc<Entity>>, Fault> {
        self.check_time()?;
        match kind {
            EntityType::Observation => self.observation(id),
            kind => Ok(self.snapshot.get(kind, id)),
        }
    }

    fn related(&self, from: &Entity, link: Link) -> Result<Vec<Arc<Entity>>, Fault> {
        // A filter with paths through sets comes here for each step of each path and each entity.
        self.check_time()?;
        if from.kind != EntityType::Observation {
            return self.snapshot.related(from, link);
        }
        let datastream = parse_observation_id(&from.id)
            .map(|(stream, field, _)| super::streams::datastream_id(stream, field))
            .and_then(|id| self.snapshot.datastreams.get(&id));
        let Some(datastream) = datastream else {
            return Ok(Vec::new());
        };
        let id = match link.target {
            EntityType::Datastream => datastream.id.clone(),
            _ => self.feature_of(from, datastream)?,
        };
        Ok(self.snapshot.get(link.target, &id).into_iter().collect())
    }

    fn observations(
        &self,
        of: &ObservationsOf,
        wanted: &Wanted<'_>,
    ) -> Result<Observations, Fault> {
        let set = self.set(of, wanted)?;
        if wanted.order.is_empty() {
            return self.by_number(&set, wanted);
        }
        let is_plain = set.streams.iter().all(|it| it.document.is_none());
        let names: &[&str] = match is_plain {
            true => &["phenomenonTime", "resultTime"],
            false => &["phenomenonTime"],
        };
        match wanted.is_by_time(names) {
            Some(is_descending) => self.by_time(&set, wanted, is_descending),
            None => self.by_keys(&set, wanted),
        }
    }
}

impl Reading {
    fn observation(&self, id: &str) -> Result<Option<Arc<Entity>>, Fault> {
        let Some((stream, field, position)) = parse_observation_id(id) else {
            return Ok(None);
        };
        let id = super::streams::datastream_id(stream, field);
        let Some(datastream) = self.snapshot.datastreams.get(&id) else {
            return Ok(None);
        };
        Ok(read_one(datastream, position)?
            .map(|(schema, element)| Arc::new(datastream.observation(&schema, &element))))
    }

    /// The id of an observation's feature.
    fn feature_of(&self, observation: &Entity, datastream: &Datastream) -> Result<String, Fault> {
        let position = parse_observation_id(&observation.id).map(|(.., position)| position);
        let named = match position.filter(|_| datastream.document.is_some()) {
            Some(position) => read_one(datastream, position)?
                .and_then(|(schema, element)| datastream.feature(&schema, &element)),
            None => None,
        };
        Ok(named.unwrap_or_else(|| datastream.thing.clone()))
    }

    fn set<'a>(&self, of: &'a ObservationsOf, wanted: &Wanted<'a>) -> Result<Set<'a>, Fault> {
        let all = self.snapshot.datastreams.values();
        let (mut streams, feature): (Vec<Arc<Datastream>>, _) = match of {
            ObservationsOf::All => (all.cloned().collect(), None),
            ObservationsOf::Datastream(entity) => {
                let found = self.snapshot.datastreams.get(&entity.id);
                (found.cloned().into_iter().collect(), None)
            }
            ObservationsOf::Feature(entity) => {
                let may_have =
                    |it: &&Arc<Datastream>| it.document.is_some() || it.thing == entity.id;
                (
                    all.filter(may_have).cloned().collect(),
                    Some(entity.id.as_str()),
                )
            }
        };
        if let Some(filter) = wanted.filter {
            if let Some(id) = equal_text(filter, &["Datastream", "id"], wanted.now)
                .or_else(|| equal_text(filter, &["Datastream", "@iot.id"], wanted.now))
            {
                streams.retain(|datastream| datastream.id == id);
            }
            let mut kept = Vec::new();
            for datastream in streams {
                if self.may_match(filter, &datastream, wanted.now)? {
                    kept.push(datastream);
                }
            }
            streams = kept;
        }
        Ok(Set {
            streams,
            feature,
            filter: wanted.filter,
            now: wanted.now,
        })
    }

    /// Whether the parts of a filter that are about the datastream alone hold for it.
    fn may_match(
        &self,
        filter: &Expression,
        datastream: &Datastream,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let Some(entity) = self.snapshot.get(EntityType::Datastream, &datastream.id) else {
            return Ok(false);
        };
        let scope = OfDatastream {
            reading: self,
            entity: &entity,
        };
        for part in filter.conjuncts() {
            let (mut is_alone, mut has_path) = (true, false);
            part.each_path(&mut |path| {
                has_path = true;
                is_alone &= path.len() > 1 && path[0] == "Datastream";
            });
            if is_alone && has_path && !is_true(part, &scope, now)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn check_time(&self) -> Result<(), Fault> {
        if self.is_abandoned.load(Memory::Relaxed) {
            return Err(Fault::Stopped("nobody waits for the answer".to_owned()));
        }
        match Instant::now() > self.deadline {
            true => Err(Fault::Stopped(format!(
                "reading was stopped at its time limit, after {} observations: bound the time with $filter, or \
                 ask without $count, in the order of phenomenonTime and with shorter paths in $filter",
                self.elements_read.get()
            ))),
            false => Ok(()),
        }
    }

    /// Calls `take` with each observation of a datastream that belongs to the set, from number `from` with times
    /// from `times.0` to `times.1`, until it returns false.
    fn each(
        &self,
        set: &Set<'_>,
        stream: usize,
        from: u64,
        times: (i64, i64),
        take: &mut dyn FnMut(Found) -> Result<bool, Fault>,
    ) -> Result<bool, Fault> {
        let datastream = &set.streams[stream];
        // The range of a scan excludes its end: an element at the last time there is would be lost.
        let range = match times {
            (i64::MIN, i64::MAX) => None,
            (low, high) => Some(Timestamp(low)..Timestamp(high.saturating_add(1))),
        };
        let mut scan = datastream.entry.log.scan(from, range);
        loop {
            self.check_time()?;
            let Some(piece) = next_piece(&mut scan)? else {
                return Ok(true);
            };
            let read = self.elements_read.get() + piece.len() as u64;
            self.elements_read.set(read);
            let schema = scan.schema().clone();
            for element in &piece {
                if let Some(feature) = set.feature {
                    let own = datastream.feature(&schema, element);
                    if own.as_deref().unwrap_or(&datastream.thing) != feature {
                        continue;
                    }
                }
                let entity = datastream.observation(&schema, element);
                if let Some(filter) = set.filter {
                    let scope = EntityScope {
                        source: self,
                        entity: &entity,
                    };
                    if !is_true(filter, &scope, set.now)? {
                        continue;
                    }
                }
                let found = Found {
                    time: element.source_time.0,
                    stream,
                    sequence: element.position.sequence,
                    bytes: entity.bytes(),
                    entity: Arc::new(entity),
                };
                if !take(found)? {
                    return Ok(false);
                }
            }
        }
    }

    /// The times that the observations of a datastream can have where the filter holds.
    fn bounds(&self, set: &Set<'_>, stream: usize) -> (i64, i64) {
        let names: &[&str] = match set.streams[stream].document {
            Some(_) => &["phenomenonTime"],
            None => &["phenomenonTime", "resultTime"],
        };
        let all = (i64::MIN, i64::MAX);
        set.filter
            .map_or(all, |filter| time_bounds(filter, names, set.now))
    }

    /// The number of observations, from the index where all belong to the set.
    fn count(&self, set: &Set<'_>) -> Result<u64, Fault> {
        let mut count = 0;
        for (stream, datastream) in set.streams.iter().enumerate() {
            if set.filter.is_none() && set.feature.is_none() {
                count += datastream.entry.log.kept();
                continue;
            }
            let times = self.bounds(set, stream);
            let mut add = |_| {
                count += 1;
                Ok(true)
            };
            self.each(set, stream, 0, times, &mut add)?;
        }
        Ok(count)
    }

    /// A page in the order of datastreams and numbers.
    fn by_number(&self, set: &Set<'_>, wanted: &Wanted<'_>) -> Result<Observations, Fault> {
        let mut skip = wanted.skip;
        let (mut first, mut from) = (0, 0);
        if let Some(token) = wanted.token {
            let (_, datastream, position) = observation_token(token, 'n')?;
            first = set
                .streams
                .partition_point(|it| it.id.as_str() < datastream);
            if set.streams.get(first).is_some_and(|it| it.id == datastream) {
                from = position.sequence + 1;
            }
            skip = 0;
        }
        let (mut page, mut bytes) = (Vec::new(), 0);
        let mut has_more = false;
        for stream in first..set.streams.len() {
            let log = &set.streams[stream].entry.log;
            let is_whole = set.filter.is_none() && set.feature.is_none();
            if skip > 0 && is_whole && log.damaged(0, u64::MAX) == 0 {
                let kept = usize::try_from(log.kept()).unwrap_or(usize::MAX);
                if skip >= kept {
                    skip -= kept;
                    continue;
                }
                from = log.log().first() + skip as u64;
                skip = 0;
            }
            let times = self.bounds(set, stream);
            let mut take = |found: Found| {
                if skip > 0 {
                    skip -= 1;
                } else if page.len() < wanted.top {
                    bytes += found.bytes;
                    if bytes > LIMITS.bytes_max {
                        return Err(Fault::too_large(LIMITS.bytes_max));
                    }
                    page.push(found);
                } else {
                    has_more = true;
                }
                Ok(!has_more)
            };
            if times.0 <= times.1 && !self.each(set, stream, from, times, &mut take)? {
                break;
            }
            from = 0;
        }
        let next = page.last().filter(|_| has_more);
        let next = next.map(|last| Resume::Token(format!("n{}", last.entity.id)));
        Ok(Observations {
            count: wanted.count.then(|| self.count(set)).transpose()?,
            entities: page.into_iter().map(|found| found.entity).collect(),
            next,
        })
    }

    /// A page in the order of time; those of the same time in that of datastreams and numbers.
    fn by_time(
        &self,
        set: &Set<'_>,
        wanted: &Wanted<'_>,
        is_descending: bool,
    ) -> Result<Observations, Fault> {
        let token = wanted.token.map(time_token).transpose()?;
        let skip = if token.is_some() { 0 } else { wanted.skip };
        let needed = needed(skip, wanted.top)?;
        let order = |one: &Found, other: &Found| {
            let order = (one.time, one.stream, one.sequence).cmp(&(
                other.time,
                other.stream,
                other.sequence,
            ));
            if is_descending {
                order.reverse()
            } else {
                order
            }
        };
        let mut windows = Windows::new(self, set, needed, is_descending);
        if let Some(token) = &token {
            windows.start_at(token.time);
        }
        let (mut page, mut page_bytes): (Vec<Found>, usize) = (Vec::new(), 0);
        while page.len() < needed
            && let Some((low, high)) = windows.next(page.len(), needed)
        {
            let mut window: Vec<Found> = Vec::new();
            let mut bytes = page_bytes;
            let room = needed - page.len();
            let most = CROWDED * needed.max(PIECE);
            let (mut found_here, mut is_crowded) = (0, false);
            for stream in 0..set.streams.len() {
                let bounds = self.bounds(set, stream);
                let times = (low.max(bounds.0), high.min(bounds.1));
                if times.0 > times.1 || !has_times(&set.streams[stream], times) {
                    continue;
                }
                let mut take = |found: Found| {
                    if token.as_ref().is_none_or(|token| {
                        let id = &set.streams[stream].id;
                        let at = (found.time, id.as_str(), found.sequence);
                        let order = at.cmp(&(token.time, token.datastream, token.sequence));
                        order
                            == if is_descending {
                                Ordering::Less
                            } else {
                                Ordering::Greater
                            }
                    }) {
                        found_here += 1;
                        is_crowded = found_here > most && windows.can_narrow();
                        bytes += found.bytes;
                        window.push(found);
                        if is_too_long(window.len(), room, bytes) {
                            keep_first(&mut window, room, order);
                            let window = window.iter().map(|found| found.bytes);
                            bytes = page_bytes + window.sum::<usize>();
                            check_sorted(bytes)?;
                        }
                    }
                    Ok(!is_crowded)
                };
                if !self.each(set, stream, 0, times, &mut take)? {
                    break;
                }
            }
            if is_crowded {
                windows.narrow(page.len());
                continue;
            }
            window.sort_unstable_by(order);
            window.truncate(room);
            page_bytes += window.iter().map(|found| found.bytes).sum::<usize>();
            check_sorted(page_bytes)?;
            page.append(&mut window);
        }
        let last = page.get((skip + wanted.top).wrapping_sub(1));
        let last = last.filter(|_| page.len() > skip + wanted.top);
        let next = last.map(|last| Resume::Token(format!("t{}!{}", last.time, last.entity.id)));
        let entities = page.into_iter().skip(skip).take(wanted.top);
        Ok(Observations {
            entities: entities.map(|found| found.entity).collect(),
            count: wanted.count.then(|| self.count(set)).transpose()?,
            next,
        })
    }

    /// A page in any other order: all observations are read.
    fn by_keys(&self, set: &Set<'_>, wanted: &Wanted<'_>) -> Result<Observations, Fault> {
        let order = |one: &(Order, Found), other: &(Order, Found)| {
            let by_number = (one.1.stream, one.1.sequence).cmp(&(other.1.stream, other.1.sequence));
            one.0.cmp(&other.0).then(by_number)
        };
        let token = wanted
            .token
            .map(|token| self.last_before(set, wanted, token));
        let before = token.transpose()?;
        let skip = if before.is_some() { 0 } else { wanted.skip };
        let needed = needed(skip, wanted.top)?;
        let (mut best, mut count, mut bytes) = (Vec::new(), 0, 0);
        for stream in 0..set.streams.len() {
            let times = self.bounds(set, stream);
            let mut take = |mut found: Found| {
                count += 1;
                let key = self.key(wanted, &found.entity)?;
                found.bytes += key.bytes();
                let found = (key, found);
                if before.as_ref().is_some_and(|it| order(&found, it).is_le()) {
                    return Ok(true);
                }
                bytes += found.1.bytes;
                best.push(found);
                if is_too_long(best.len(), needed, bytes) {
                    keep_first(&mut best, needed, order);
                    bytes = best.iter().map(|(_, found)| found.bytes).sum();
                    check_sorted(bytes)?;
                }
                Ok(true)
            };
            if times.0 <= times.1 {
                self.each(set, stream, 0, times, &mut take)?;
            }
        }
        best.sort_unstable_by(order);
        best.truncate(needed);
        let last = best.get((skip + wanted.top).wrapping_sub(1));
        let last = last.filter(|_| best.len() > skip + wanted.top);
        let next = last.map(|(_, last)| Resume::Token(format!("k{}", last.entity.id)));
        let page = best.into_iter().skip(skip).take(wanted.top);
        Ok(Observations {
            entities: page.map(|(_, found)| found.entity).collect(),
            count: wanted.count.then_some(count),
            next,
        })
    }

    fn key(&self, wanted: &Wanted<'_>, entity: &Entity) -> Result<Order, Fault> {
        let scope = EntityScope {
            source: self,
            entity,
        };
        Order::of(wanted.order, &scope)
    }

    /// The observation after which a page starts, with its place in the order.
    fn last_before(
        &self,
        set: &Set<'_>,
        wanted: &Wanted<'_>,
        token: &str,
    ) -> Result<(Order, Found), Fault> {
        let (id, datastream, position) = observation_token(token, 'k')?;
        let gone = || {
            let id: String = id.chars().take(80).collect();
            Fault::Invalid(format!(
                "the observation {id:?}, after which the page starts, is not kept any more: start again with the \
                 first page"
            ))
        };
        let entity = self.observation(id)?.ok_or_else(gone)?;
        let found = Found {
            // The order does not ask for it.
            time: 0,
            stream: set
                .streams
                .partition_point(|it| it.id.as_str() < datastream),
            sequence: position.sequence,
            bytes: entity.bytes(),
            entity,
        };
        Ok((self.key(wanted, &found.entity)?, found))
    }
}

/// The observations that must be known to answer a page, one more than it has.
fn needed(skip: usize, top: usize) -> Result<usize, Fault> {
    let needed = skip.saturating_add(top).saturating_add(1);
    match needed > SORTED_MAX {
        true => Err(Fault::Invalid(format!(
            "$skip and $top reach beyond {SORTED_MAX} sorted observations: follow @iot.nextLink instead, or \
             bound the time with $filter"
        ))),
        false => Ok(needed),
    }
}

/// Whether `length` entries with so many bytes are to be cut to the first `most` of them.
fn is_too_long(length: usize, most: usize, bytes: usize) -> bool {
    length >= most.saturating_mul(2).max(PIECE) || bytes > SORTED_BYTES_MAX
}

/// Refuses more bytes than half of what may be held; the other half is for those that a cut drops, so that not
/// every further entry needs one.
fn check_sorted(bytes: usize) -> Result<(), Fault> {
    match bytes > SORTED_BYTES_MAX / 2 {
        true => Err(Fault::too_large(SORTED_BYTES_MAX / 2)),
        false => Ok(()),
    }
}

/// Drops all but the first `most` entries.
fn keep_first<T>(list: &mut Vec<T>, most: usize, order: impl Fn(&T, &T) -> Ordering) {
    let most = most.max(1);
    if list.len() > most {
        list.select_nth_unstable_by(most - 1, order);
        list.truncate(most);
    }
}

/// Whether a stream may have elements of these times.
fn has_times(datastream: &Datastream, times: (i64, i64)) -> bool {
    let log = datastream.entry.log.log();
    let from = log.first();
    log.seek_time(from, times.0, times.1.saturating_add(1))
        .is_some()
}

/// Consecutive windows of time from one end of the observations to the other. Each is twice as wide as the one
/// before.
struct Windows {
    /// What is left: least and greatest time, both included.
    left: Option<(i128, i128)>,
    /// What was left before the last window, and the width of that.
    before: (Option<(i128, i128)>, i128),
    /// How many observations there were when it was made narrower, until there are more.
    narrowed_at: Option<usize>,
    width: i128,
    is_descending: bool,
}

impl Windows {
    fn new(reading: &Reading, set: &Set<'_>, needed: usize, is_descending: bool) -> Self {
        let mut span: Option<(i64, i64)> = None;
        let mut kept: i128 = 0;
        for (stream, datastream) in set.streams.iter().enumerate() {
            let log = &datastream.entry.log;
            let bounds = reading.bounds(set, stream);
            // Elements that wait for the disk have no times yet.
            let times = match (log.log().times(), log.kept()) {
                (_, 0) => continue,
                (Some(times), _) => times,
                (None, _) => (i64::MIN, i64::MAX),
            };
            let newest = datastream.entry.last_time().map_or(times.1, |time| time.0);
            let times = (
                times.0.min(newest).max(bounds.0),
                times.1.max(newest).min(bounds.1),
            );
            if times.0 > times.1 {
                continue;
            }
            kept += i128::from(log.kept());
            span = Some(match span {
                Some(known) => (known.0.min(times.0), known.1.max(times.1)),
                None => times,
            });
        }
        let left = span.map(|(low, high)| (i128::from(low), i128::from(high)));
        let width = left.map_or(1, |(low, high)| {
            (high - low) / kept.max(1) * needed as i128 * FIRST_WINDOW
        });
        Self {
            left,
            before: (left, 1),
            narrowed_at: None,
            width: width.clamp(1, WIDEST),
            is_descending,
        }
    }

    fn start_at(&mut self, time: i64) {
        let time = i128::from(time);
        self.left = self.left.and_then(|(low, high)| {
            let left = match self.is_descending {
                true => (low, high.min(time)),
                false => (low.max(time), high),
            };
            (left.0 <= left.1).then_some(left)
        });
    }

    /// The next window; `found` of `needed` observations were in those before.
    fn next(&mut self, found: usize, needed: usize) -> Option<(i64, i64)> {
        let (low, high) = self.left?;
        self.before = (self.left, self.width.min(high - low));
        let window = match self.is_descending {
            true => (low.max(high - self.width), high),
            false => (low, high.min(low + self.width)),
        };
        self.left = match self.is_descending {
            true => (window.0 > low).then_some((low, window.0 - 1)),
            false => (window.1 < high).then_some((window.1 + 1, high)),
        };
        // Far from enough: the filter is rare here, or there is a pause.
        let factor = match self.narrowed_at {
            // The crowd is in one of the next.
            Some(at) if at == found => 1,
            _ if found * 4 < needed => 8,
            _ => 2,
        };
        self.width = self.width.saturating_mul(factor).min(WIDEST);
        Some((i64::try_from(window.0).ok()?, i64::try_from(window.1).ok()?))
    }

    /// Whether the last window is wide enough to be divided.
    fn can_narrow(&self) -> bool {
        self.before.1 > NARROWER
    }

    /// Goes back before the last window, to a narrower one; there were `found` observations before it.
    fn narrow(&mut self, found: usize) {
        let (left, width) = self.before;
        self.left = left;
        self.width = (width / NARROWER).max(1);
        self.narrowed_at = Some(found);
    }
}

/// The scope of parts of a filter that are about the datastream alone.
struct OfDatastream<'a> {
    reading: &'a Reading,
    entity: &'a Entity,
}

impl Scope for OfDatastream<'_> {
    fn value(&self, path: &[String]) -> Result<Value, Fault> {
        let scope = EntityScope {
            source: self.reading,
            entity: self.entity,
        };
        scope.value(path.get(1..).unwrap_or_default())
    }
}

fn next_piece(scan: &mut Scan) -> Result<Option<Vec<StreamElement>>, Fault> {
    scan.next_undamaged(PIECE).map_err(|error| failed(&error))
}

/// An element at a position, with the schema of its values.
fn read_one(
    datastream: &Datastream,
    position: Position,
) -> Result<Option<(StreamSchema, StreamElement)>, Fault> {
    let log = &datastream.entry.log;
    let sequence = position.sequence;
    if sequence < log.log().first() || sequence > log.log().last() {
        return Ok(None);
    }
    let mut scan = log.scan(sequence, None);
    let piece = match scan.next_piece(1) {
        // Damaged, or no longer kept.
        Err(StoreError::Log(chappe_log::Error::Gap { .. })) => return Ok(None),
        piece => piece.map_err(|error| failed(&error))?,
    };
    let element = piece.unwrap_or_default().into_iter().next();
    let element = element.filter(|element| element.position == position);
    Ok(element.map(|element| (scan.schema().clone(), element)))
}

fn failed(error: &StoreError) -> Fault {
    Fault::Failed(format!("observations cannot be read: {error}"))
}

/// The observation after which a page starts: its id, that of its datastream, and its position. The letter tells the
/// order of the page.
fn observation_token(token: &str, letter: char) -> Result<(&str, &str, Position), Fault> {
    let wrong = || Fault::invalid("$skiptoken belongs to another order, or is not of this service");
    let id = token.strip_prefix(letter).ok_or_else(wrong)?;
    let (.., position) = parse_observation_id(id).ok_or_else(wrong)?;
    let (datastream, _) = split_observation(id).ok_or_else(wrong)?;
    match position.sequence {
        u64::MAX => Err(wrong()),
        _ => Ok((id, datastream, position)),
    }
}

fn time_token(token: &str) -> Result<TimeToken<'_>, Fault> {
    let wrong = || Fault::invalid("$skiptoken belongs to another order, or is not of this service");
    let (time, id) = token.split_once('!').ok_or_else(wrong)?;
    let time = time.strip_prefix('t').ok_or_else(wrong)?;
    let (.., position) = parse_observation_id(id).ok_or_else(wrong)?;
    let (datastream, _) = split_observation(id).ok_or_else(wrong)?;
    Ok(TimeToken {
        time: time.parse().map_err(|_| wrong())?,
        datastream,
        sequence: position.sequence,
    })
}

/// The id of the datastream, and the position, of an observation's id.
fn split_observation(id: &str) -> Option<(&str, &str)> {
    let second = id.match_indices(':').nth(1)?.0;
    Some((&id[..second], &id[second + 1..]))
}

#[cfg(test)]
mod tests;
