//! The machine: one node of the network.

mod joining;
mod publishing;
mod requests;
mod returning;
mod round_trip;
mod searching;
mod serving;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output, Timers};

use crate::cryptography::Cryptography;
use crate::peers::Peers;
use crate::size::Size;
use crate::store::Store;
use crate::table::{Entry, Table};
use crate::types::{Command, Counters, Datagram, Entrance, Event, Report};
use crate::walk::{Manner, Walk};
use crate::{Config, Contact, Drop, Key, LookupId, Misuse, SearchId};
use publishing::{Publication, Publishing};
use requests::InFlight;
use returning::Lost;
use round_trip::RoundTrip;
use searching::Searching;

/// The name of something at work.
type TaskId = u32;

/// Nearest nodes that a lookup gives, and from which the size of the network is estimated.
const CLOSEST: usize = 16;
/// Of these the size is estimated: near enough that none is missed.
const SIZE_OF: usize = 8;
/// Nearest nodes that must have answered on each path.
const WIDTH: usize = 2;
/// Nodes that a path from afar begins with.
const AFAR: usize = 4;
/// Lookups of random places before a region is chosen.
const SIZES_MIN: usize = 5;
/// Lookups after which a region is chosen whatever is known: in a network where hardly anybody answers.
const SIZE_LOOKUPS_MAX: usize = 4 * SIZES_MIN;
/// Jobs that wait.
const JOBS_MAX: usize = 4_096;

/// Why a lookup is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Application(LookupId),
    /// Of the own place, to find the neighbours.
    Join,
    /// Of a place of a bucket, so that it is filled.
    Refresh,
    /// Of a random place, for the size of the network.
    Size,
}

/// What waits to be begun.
#[derive(Clone, Debug)]
enum Job {
    Lookup { target: Key, why: Why },
    Publish { slot: u16, key: Key, level: u8 },
    Withdraw { slot: u16, key: Key, level: u8 },
}

#[derive(Debug)]
struct Lookup {
    target: Key,
    why: Why,
    walk: Walk,
}

#[derive(Debug)]
enum Task {
    Lookup(Lookup),
    Publishing(Box<Publishing>),
    Searching(Box<Searching>),
}

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Request(Key, u64),
    Publish(u16),
    Search(TaskId),
    Housekeeping,
    Enter,
    Rejoin,
}

/// One node of the network. The [crate documentation](crate) says how to drive it.
#[derive(Debug)]
pub struct Kad<C> {
    config: Config,
    peers: Peers<C>,
    table: Table,
    store: Store,
    size: Size,
    random: fastrand::Rng,
    round_trip: RoundTrip,
    timers: Timers<Alarm>,
    in_flight: BTreeMap<(Key, u64), InFlight>,
    tasks: BTreeMap<TaskId, Task>,
    next_task: TaskId,
    /// Tasks that may have something to do.
    awake: VecDeque<TaskId>,
    jobs: VecDeque<Job>,
    publications: BTreeMap<u16, Publication>,
    /// The last sequence number of an own record.
    sequence: u64,
    entrances: VecDeque<Entrance>,
    enter_wait: Duration,
    joined: bool,
    /// The entrances that have answered, while others are awaited.
    entered_by: Vec<Contact>,
    /// Contacts that went from the table because they were silent.
    lost: Vec<Lost>,
    /// Those of them that were heard again, while the neighbours are not looked for yet.
    returned: Vec<Contact>,
    size_lookups: usize,
    outputs: VecDeque<Output<Datagram, Event>>,
    counters: Counters,
}

impl<C: Cryptography> Kad<C> {
    /// A node that knows nobody yet.
    pub fn new(cryptography: C, config: Config, now: Instant) -> Self {
        let config = config.sane();
        let peers = Peers::new(cryptography, config.clone(), now);
        let mut number = [0; 8];
        let tag = peers.cryptography().tag(&config.seed, &[b"choices"]);
        number.copy_from_slice(&tag[..8]);
        let mut timers = Timers::default();
        timers.set(Alarm::Housekeeping, now + config.housekeeping);
        Self {
            table: Table::new(peers.place(), &config),
            store: Store::new(&config),
            size: Size::default(),
            random: fastrand::Rng::with_seed(u64::from_be_bytes(number)),
            round_trip: RoundTrip::new(config.timeout),
            timers,
            in_flight: BTreeMap::new(),
            tasks: BTreeMap::new(),
            next_task: 0,
            awake: VecDeque::new(),
            jobs: VecDeque::new(),
            publications: BTreeMap::new(),
            sequence: u64::from(config.boot) << 32,
            entrances: VecDeque::new(),
            enter_wait: joining::ENTER_WAIT_MIN,
            joined: false,
            entered_by: Vec::new(),
            lost: Vec::new(),
            returned: Vec::new(),
            size_lookups: 0,
            outputs: VecDeque::new(),
            counters: Counters::default(),
            peers,
            config,
        }
    }

    /// The own place.
    #[must_use]
    pub fn place(&self) -> Key {
        self.peers.place()
    }

    /// Takes contacts of the last run into the table as if they had just answered. Those that are gone go
    /// from it when they do not answer.
    pub fn recall(&mut self, now: Instant, contacts: impl IntoIterator<Item = Contact>) {
        for contact in contacts {
            self.observe(now, &contact);
        }
    }

    /// The contacts of the table: to be kept, and recalled at the next start.
    pub fn contacts(&self) -> impl Iterator<Item = Contact> {
        self.table.contacts()
    }

    /// How many contacts the table has.
    #[must_use]
    pub fn contacts_len(&self) -> usize {
        self.table.len()
    }

    /// How many nodes the network has, as far as this one can tell.
    #[must_use]
    pub fn network_nodes(&self) -> Option<f64> {
        self.size.nodes()
    }

    /// How many leading bits the region of a key shares.
    #[must_use]
    pub fn region_bits(&self) -> u32 {
        self.size.region_bits(self.config.region_nodes)
    }

    /// How many records are kept for others, and the bytes they take.
    #[must_use]
    pub fn stored(&self) -> (usize, usize) {
        (self.store.len(), self.store.bytes())
    }

    /// How many records are kept at a place.
    #[must_use]
    pub fn held_at(&self, now: Instant, place: Key) -> u16 {
        self.store.page(now, place, (0, 0), 0).held
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How many packets were dropped for a reason.
    #[must_use]
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.peers.dropped(reason)
    }

    /// Bytes that the state takes while nothing is at work, apart from the allocator's own.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        size_of::<Self>()
            + self.table.state_bytes()
            + self.peers.state_bytes()
            + self.store.bytes()
            + self.lost.capacity() * size_of::<Lost>()
    }

    fn report(&self) -> Report {
        let searching = |task: &&Task| matches!(task, Task::Searching(_));
        Report {
            contacts: self.contacts().collect(),
            // An estimate of at most 2^128; what is beyond 2^64 is cut.
            network_nodes: self.network_nodes().map(|nodes| nodes.round() as u64),
            records: self.store.len(),
            record_bytes: self.store.bytes(),
            publications: self.publications.len(),
            searches: self.tasks.values().filter(searching).count(),
            at_work: self.tasks.len() + self.jobs.len(),
            counters: self.counters,
        }
    }

    fn seconds(now: Instant) -> u32 {
        // 136 years.
        u32::try_from((now - Instant::ZERO).as_secs()).unwrap_or(u32::MAX)
    }

    fn place_of(&self, contact: &Contact) -> Key {
        self.peers.cryptography().place(&contact.public)
    }

    fn say(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn transmit(&mut self, to: &Contact, bytes: Vec<u8>) {
        self.counters.sent_bytes += bytes.len() as u64;
        let address = to.address;
        let datagram = Datagram { address, bytes };
        self.outputs.push_back(Output::Transmit(datagram));
    }

    /// A node has shown its key and its address.
    fn observe(&mut self, now: Instant, contact: &Contact) {
        if !self.config.reach.allows(contact.address) {
            return;
        }
        let now_s = Self::seconds(now);
        let entry = Entry::new(self.place_of(contact), contact, now_s);
        let silence_s = u32::try_from(self.config.silence.as_secs()).unwrap_or(u32::MAX);
        if let Some(silent) = self.table.observe(entry, silence_s) {
            self.check_whether_there(now, silent);
        }
        self.welcome(now, contact);
    }

    // -- tasks --

    fn job(&mut self, job: Job) {
        if self.jobs.len() < JOBS_MAX {
            self.jobs.push_back(job);
        }
    }

    fn manner(&self, width: usize) -> Manner {
        Manner {
            width,
            parallel: self.config.parallel,
            host_contacts: self.config.host_contacts,
            asks_max: self.config.lookup_asks,
            finish: None,
        }
    }

    /// A walk that begins at the nearest known nodes, dealt out to its paths.
    fn walk(&self, points: &[Key], manner: Manner) -> Walk {
        let mut walk = Walk::new(points, manner);
        let nearest: Vec<_> = points
            .iter()
            .map(|point| self.table.closest(*point, 2 * CLOSEST))
            .collect();
        // Each path in turn takes its nearest that no other has.
        for rank in 0..2 * CLOSEST {
            for (path, contacts) in nearest.iter().enumerate() {
                let at = match points.first() == points.last() {
                    // One target: the same list for all, hence every so manyth.
                    true => rank * points.len() + path,
                    false => rank,
                };
                if let Some(contact) = contacts.get(at) {
                    walk.begin(path, self.place_of(contact), *contact);
                }
            }
        }
        walk
    }

    /// A walk that begins at known nodes chosen by chance: where the nearest may be an attacker's.
    fn walk_from_afar(&mut self, points: &[Key], manner: Manner) -> Walk {
        let mut walk = Walk::new(points, manner);
        let known = self.table.any(AFAR * points.len(), &mut self.random);
        for (at, contact) in known.into_iter().enumerate() {
            let place = self.place_of(&contact);
            walk.begin(at % points.len(), place, contact);
        }
        walk
    }

    fn begin_jobs(&mut self, now: Instant) {
        let begun = |task: &Task| !matches!(task, Task::Searching(_));
        let mut room = self
            .config
            .tasks_max
            .saturating_sub(self.tasks.values().filter(|it| begun(it)).count());
        let wanted = |job: &Job| !matches!(job, Job::Lookup { .. });
        let wanted = self.jobs.iter().any(wanted);
        let unsized_yet = !self.size_is_known(wanted);
        let mut at = 0;
        while room > 0 && at < self.jobs.len() {
            let waits = unsized_yet && !matches!(self.jobs[at], Job::Lookup { .. });
            if waits {
                at += 1;
                continue;
            }
            let Some(job) = self.jobs.remove(at) else {
                break;
            };
            let task = match job {
                Job::Lookup { target, why } => Some(self.begin_lookup(now, target, why)),
                Job::Publish { slot, key, level } => self.begin_publishing(now, slot, key, level),
                Job::Withdraw { slot, key, level } => {
                    Some(self.begin_withdrawing(now, slot, key, level))
                }
            };
            if let Some(task) = task {
                self.add_task(task);
                room -= 1;
            }
        }
    }

    fn add_task(&mut self, task: Task) -> TaskId {
        let id = self.next_task;
        self.next_task = self.next_task.wrapping_add(1);
        self.tasks.insert(id, task);
        self.awake.push_back(id);
        id
    }

    fn begin_lookup(&mut self, now: Instant, target: Key, why: Why) -> Task {
        self.table.refreshed(target, Self::seconds(now));
        // Who only fills a bucket needs neither all paths nor all of the nearest.
        let (paths, finish) = match why {
            Why::Refresh => (self.config.paths.min(2), None),
            Why::Size => (self.config.paths, Some((target, SIZE_OF))),
            Why::Application(_) | Why::Join => (self.config.paths, Some((target, CLOSEST))),
        };
        let manner = Manner {
            finish,
            ..self.manner(WIDTH)
        };
        let walk = self.walk(&vec![target; paths], manner);
        Task::Lookup(Lookup { target, why, walk })
    }

    /// Lets everything that may go on go on.
    fn work(&mut self, now: Instant) {
        loop {
            self.begin_jobs(now);
            let Some(id) = self.awake.pop_front() else {
                break;
            };
            let Some(task) = self.tasks.remove(&id) else {
                continue;
            };
            let task = match task {
                Task::Lookup(lookup) => self.work_on_lookup(now, id, lookup),
                Task::Publishing(publishing) => self.work_on_publishing(now, id, publishing),
                Task::Searching(searching) => self.work_on_search(now, id, searching),
            };
            if let Some(task) = task {
                self.tasks.insert(id, task);
            }
        }
    }

    fn work_on_lookup(&mut self, now: Instant, id: TaskId, mut lookup: Lookup) -> Option<Task> {
        while let Some((contact, point)) = lookup.walk.next() {
            let count = crate::config::FIND_CONTACTS;
            if !self.find(now, contact, (point, count), requests::Purpose::Walk(id)) {
                lookup.walk.failed(self.place_of(&contact));
            }
        }
        if !lookup.walk.is_done() {
            return Some(Task::Lookup(lookup));
        }
        self.lookup_ended(&lookup);
        None
    }

    fn lookup_ended(&mut self, lookup: &Lookup) {
        let closest = lookup.walk.closest(lookup.target, CLOSEST);
        if lookup.why == Why::Size || matches!(lookup.why, Why::Application(_)) {
            let places: Vec<_> = closest.iter().take(SIZE_OF).map(|it| it.place).collect();
            self.size.looked_up(lookup.target, &places, SIZE_OF);
        }
        match lookup.why {
            Why::Application(id) => {
                let closest: Vec<_> = closest.iter().map(|it| it.contact).collect();
                let event = Event::LookupEnded {
                    lookup: id,
                    hops: lookup.walk.hops(lookup.target, 1),
                    asked: lookup.walk.asked(),
                    closest,
                };
                self.say(event);
            }
            Why::Join => self.neighbours_found(),
            Why::Size => {
                let searching = |(id, task): (&TaskId, &Task)| {
                    matches!(task, Task::Searching(_)).then_some(*id)
                };
                self.awake.extend(self.tasks.iter().filter_map(searching));
            }
            Why::Refresh => {}
        }
    }

    fn order(&mut self, now: Instant, command: Command) {
        match command {
            Command::TimeOfDay { unix_s } => self.peers.set_time_of_day(now, unix_s),
            Command::Enter(entrances) => self.enter(now, entrances),
            Command::Lookup { lookup, target } => {
                let why = Why::Application(lookup);
                if self.jobs.len() >= JOBS_MAX {
                    self.say(Event::Misused(Misuse::TooMany(JOBS_MAX)));
                }
                self.job(Job::Lookup { target, why });
            }
            Command::Publish { slot, keys, value } => self.publish(now, slot, keys, value),
            Command::Withdraw { slot } => self.withdraw(slot),
            Command::Search {
                search,
                key,
                credit,
            } => self.search(search, key, credit),
            Command::Grant { search, credit } => self.grant(search, credit),
            Command::Stop { search } => self.stop(search),
            Command::Ping(contact) => {
                let asked = self.ping(now, contact, requests::Purpose::Application);
                if !asked {
                    let there = false;
                    self.say(Event::Pinged { contact, there });
                }
            }
            Command::Report => {
                let report = Event::Reported(Box::new(self.report()));
                self.say(report);
            }
        }
    }

    fn searching(&mut self, search: SearchId) -> Option<(TaskId, &mut Searching)> {
        self.tasks.iter_mut().find_map(|(id, task)| match task {
            Task::Searching(searching) if searching.search == search => {
                Some((*id, searching.as_mut()))
            }
            _ => None,
        })
    }
}

impl<C: Cryptography> Machine for Kad<C> {
    type Receive = Datagram;
    type Command = Command;
    type Transmit = Datagram;
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: Input<Datagram, Command>) {
        match input {
            Input::Receive(datagram) => self.receive(now, &datagram),
            Input::Command(command) => self.order(now, command),
            Input::Timeout => {}
        }
        while let Some(alarm) = self.timers.pop(now) {
            match alarm {
                Alarm::Request(place, number) => self.timed_out(now, (place, number)),
                Alarm::Publish(slot) => self.renew(now, slot),
                Alarm::Search(id) => self.search_idled(id),
                Alarm::Housekeeping => self.keep_house(now),
                Alarm::Enter => self.enter_again(now),
                Alarm::Rejoin => self.rejoin(now),
            }
        }
        self.work(now);
    }

    fn poll_output(&mut self) -> Option<Output<Datagram, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }
}

impl<C: Cryptography> Invariant for Kad<C> {
    fn check(&self) -> Result<(), String> {
        self.table.check()?;
        self.store.check()?;
        self.check_lost()?;
        if self.peers.len() > self.config.peers_max {
            return Err(format!("{} peers are kept", self.peers.len()));
        }
        for task in self.tasks.values() {
            match task {
                Task::Lookup(lookup) => lookup.walk.check()?,
                Task::Publishing(publishing) => publishing.check()?,
                Task::Searching(searching) => searching.check()?,
            }
        }
        Ok(())
    }
}
