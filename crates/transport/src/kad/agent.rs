//! The task next to a node's machine: delivers findings, republishes when the network has grown, and stores the last
//! contacts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use chappe_identity::PublicKey;
use chappe_kad::service::Announcement;
use chappe_kad::{
    Command, Contact, Entrance, Event, Kad, Key, NodeKey, Reach, Record, Report, SearchId,
    SearchReport,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::node::{Finding, KadNodeOptions, Sighting, hosts, unix_s};
use super::write_contacts;
use crate::{Drops, Hop};

/// The file of the last contacts.
pub(super) const CONTACTS_FILE: &str = "kad-contacts";
/// Searches at the same time; further ones wait.
const SEARCHES_MAX: usize = 16;
/// Waiting searches; a further one ends at once.
const WAITING_SEARCHES_MAX: usize = 256;
/// Sightings whose publisher is being pinged; a further one is delivered unconfirmed.
const PENDING_PINGS_MAX: usize = 256;
/// Publishers with a remembered ping result.
const ANSWERS_MAX: usize = 1_024;
/// How long a successful ping is remembered.
const ANSWER_REMEMBERED: Duration = Duration::from_secs(600);
/// How long a failed ping is remembered. Reason: the ping may have been lost, and until the next one the device is
/// not contacted.
const SILENCE_REMEMBERED: Duration = Duration::from_secs(5);
/// The number of contacts up to which growth causes records to be published again: about the nodes of a region.
/// Reason: records published among few nodes are later searched for among more.
const SMALL_NETWORK: usize = 32;
/// The interval at which contacts are stored.
const STORE_PERIOD: Duration = Duration::from_secs(60);
/// The interval at which a closing node is checked for pending work.
const CLOSING_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The largest number of keys of one publication.
const KEYS_MAX: usize = 64;

/// A command for a node.
#[derive(Debug)]
pub(super) enum Order {
    Enter(Vec<Entrance>),
    Publish(u16, Box<Announcement>),
    Withdraw(u16),
    Find {
        key: Key,
        credit: u64,
        to: mpsc::Sender<Finding>,
    },
    Close(Duration, oneshot::Sender<()>),
}

/// A running search.
struct Search {
    key: Key,
    to: mpsc::Sender<Finding>,
    /// Its sightings whose publisher is being pinged.
    asked: usize,
    exhausted: bool,
    ended: Option<SearchReport>,
}

/// A sighting whose publisher is being pinged.
struct PendingSighting {
    search: SearchId,
    sighting: Sighting,
    left: Vec<Contact>,
}

struct Publication {
    command: Command,
    /// The number of contacts at its last publication.
    contacts: usize,
}

pub(super) struct Agent {
    commands: mpsc::Sender<Command>,
    running: JoinHandle<Kad<NodeKey>>,
    reach: Reach,
    port: u16,
    contacts_file: Option<PathBuf>,
    report_period: Duration,
    report: watch::Sender<Report>,
    drops: Drops,
    publications: BTreeMap<u16, Publication>,
    searches: BTreeMap<SearchId, Search>,
    waiting: VecDeque<(Key, u64, mpsc::Sender<Finding>)>,
    next_search: u32,
    asked: Vec<PendingSighting>,
    answers: HashMap<Contact, (bool, Instant)>,
    kept: (Vec<Contact>, Instant),
    closing: Option<Instant>,
}

impl Agent {
    pub(super) fn new(
        (commands, running): (mpsc::Sender<Command>, JoinHandle<Kad<NodeKey>>),
        reach: Reach,
        (options, local): (&KadNodeOptions, SocketAddr),
        report: watch::Sender<Report>,
        drops: Drops,
    ) -> Self {
        let directory = options.directory.as_ref();
        Self {
            commands,
            running,
            reach,
            port: local.port(),
            contacts_file: directory.map(|directory| directory.join(CONTACTS_FILE)),
            report_period: options.report_period,
            report,
            drops,
            publications: BTreeMap::new(),
            searches: BTreeMap::new(),
            waiting: VecDeque::new(),
            next_search: 0,
            asked: Vec::new(),
            answers: HashMap::new(),
            kept: (Vec::new(), Instant::now()),
            closing: None,
        }
    }

    pub(super) async fn run(
        mut self,
        entrances: Vec<Entrance>,
        mut orders: mpsc::Receiver<Order>,
        mut events: mpsc::Receiver<Event>,
    ) {
        self.time_of_day().await;
        self.command(Command::Enter(entrances)).await;
        let mut waiting_caller = None;
        let mut tick = tokio::time::interval(self.report_period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let closing = self.closing.is_some();
            tokio::select! {
                order = orders.recv(), if !closing => match order {
                    Some(Order::Close(patience, done)) => {
                        waiting_caller = Some(done);
                        self.close(patience).await;
                    }
                    Some(order) => self.order(order).await,
                    // Dropped: ended without withdrawing its records.
                    None => break,
                },
                event = events.recv() => match event {
                    Some(event) => {
                        if self.on_event(event).await {
                            break;
                        }
                    }
                    None => break,
                },
                _ = tick.tick() => {
                    self.time_of_day().await;
                    self.command(Command::Report).await;
                }
                () = tokio::time::sleep(CLOSING_POLL_INTERVAL), if closing => {
                    if self.closing.is_some_and(|until| until <= Instant::now()) {
                        break;
                    }
                    self.command(Command::Report).await;
                }
            }
        }
        drop(self.commands);
        // Further events have no receiver.
        events.close();
        if let (Ok(machine), Some(path)) = (self.running.await, self.contacts_file) {
            store_contacts(path, machine.contacts().collect(), self.drops).await;
        }
        // The caller of close may have been dropped.
        let _ = waiting_caller.map(|waiting_caller| waiting_caller.send(()));
    }

    async fn command(&self, command: Command) {
        // The machine ends with this task.
        let _ = self.commands.send(command).await;
    }

    async fn time_of_day(&self) {
        self.command(Command::TimeOfDay { unix_s: unix_s() }).await;
    }

    async fn order(&mut self, order: Order) {
        match order {
            Order::Enter(entrances) => self.command(Command::Enter(entrances)).await,
            Order::Publish(slot, announcement) => {
                let command = publication(slot, *announcement, self.port);
                let Command::Publish { .. } = &command else {
                    return;
                };
                let contacts = self.report.borrow().contacts.len();
                self.command(command.clone()).await;
                let publication = Publication { command, contacts };
                self.publications.insert(slot, publication);
            }
            Order::Withdraw(slot) => {
                if self.publications.remove(&slot).is_some() {
                    self.command(Command::Withdraw { slot }).await;
                }
            }
            Order::Find { key, credit, to } => {
                // Without room the caller sees the end of the channel.
                if self.waiting.len() < WAITING_SEARCHES_MAX {
                    self.waiting.push_back((key, credit, to));
                    self.begin_searches().await;
                }
            }
            // Answered by the caller itself.
            Order::Close(..) => {}
        }
    }

    async fn close(&mut self, patience: Duration) {
        self.closing = Some(Instant::now() + patience);
        for slot in std::mem::take(&mut self.publications).into_keys() {
            self.command(Command::Withdraw { slot }).await;
        }
        self.command(Command::Report).await;
    }

    async fn begin_searches(&mut self) {
        while self.searches.len() < SEARCHES_MAX {
            let Some((key, credit, to)) = self.waiting.pop_front() else {
                return;
            };
            let search = SearchId(self.next_search);
            self.next_search = self.next_search.wrapping_add(1);
            let at_work = Search {
                key,
                to,
                asked: 0,
                exhausted: false,
                ended: None,
            };
            self.searches.insert(search, at_work);
            let command = Command::Search {
                search,
                key,
                credit,
            };
            self.command(command).await;
        }
    }

    /// Handles an event. Returns whether a closing node has finished.
    async fn on_event(&mut self, event: Event) -> bool {
        match event {
            Event::Joined { .. } => self.command(Command::Report).await,
            Event::Reported(report) => return self.on_report(*report).await,
            Event::Found { search, record } => self.found(search, record).await,
            Event::Pinged { contact, there } => self.on_ping_result(contact, there),
            Event::SearchPaused { search } => {
                if let Some(it) = self.searches.get_mut(&search) {
                    it.exhausted = true;
                }
                self.command(Command::Stop { search }).await;
            }
            Event::SearchEnded { search, report } => {
                if let Some(it) = self.searches.get_mut(&search) {
                    it.ended = Some(report);
                }
            }
            Event::Misused(misuse) => {
                let detail = misuse.to_string();
                self.drops
                    .record(Hop::Discovery, "kad misused", "", detail, None);
            }
            _ => {}
        }
        self.end_searches().await;
        false
    }

    async fn on_report(&mut self, report: Report) -> bool {
        let contacts = report.contacts.len();
        let done = self.closing.is_some() && report.at_work == 0;
        // Records published among few nodes are not where more nodes will search for them.
        for publication in self.publications.values_mut() {
            if contacts > publication.contacts && publication.contacts < SMALL_NETWORK {
                publication.contacts = contacts;
                let _ = self.commands.send(publication.command.clone()).await;
            }
        }
        let (kept, at) = &self.kept;
        if let Some(path) = &self.contacts_file
            && contacts > 0
            && (kept.is_empty() || at.elapsed() >= STORE_PERIOD && *kept != report.contacts)
        {
            store_contacts(path.clone(), report.contacts.clone(), self.drops.clone()).await;
            self.kept = (report.contacts.clone(), Instant::now());
        }
        self.report.send_replace(report);
        done
    }

    async fn found(&mut self, search: SearchId, record: Record) {
        let Some(it) = self.searches.get_mut(&search) else {
            return;
        };
        if it.to.is_closed() {
            self.command(Command::Stop { search }).await;
            return;
        }
        let announcement = Announcement::from_bytes(&record.value);
        let announcement = announcement.filter(|said| said.keys().contains(&it.key));
        let Some(announcement) = announcement else {
            let (reason, publisher) = ("no announcement", record.publisher);
            let hint = Some("its publisher uses another version, or another program".to_owned());
            let detail = format!("a record of {} bytes", record.value.len());
            self.drops
                .record(Hop::Discovery, reason, publisher, detail, hint);
            return;
        };
        let port = announcement.port;
        let mut sighting = Sighting {
            announcement,
            publisher: record.publisher,
            sequence: record.sequence,
            confirmed: None,
        };
        let hosts = hosts(&sighting.announcement);
        let addresses = hosts.into_iter().map(|ip| SocketAddr::from((ip, port)));
        let contacts = addresses.filter(|address| self.reach.allows(*address));
        let mut left: Vec<_> = contacts
            .map(|address| Contact {
                public: record.publisher,
                address,
            })
            .collect();
        self.answers.retain(|_, (there, at)| {
            let remembered = if *there {
                ANSWER_REMEMBERED
            } else {
                SILENCE_REMEMBERED
            };
            at.elapsed() < remembered
        });
        let answered = |contact: &&Contact| matches!(self.answers.get(*contact), Some((true, _)));
        sighting.confirmed = left.iter().find(answered).map(|contact| contact.address);
        left.retain(|contact| !self.answers.contains_key(contact));
        let hand_on = sighting.confirmed.is_some() || left.is_empty();
        if hand_on || self.asked.len() >= PENDING_PINGS_MAX {
            send_finding(&self.searches, &self.drops, search, sighting);
            return;
        }
        it.asked += 1;
        let commands = left.iter().copied().map(Command::Ping).collect::<Vec<_>>();
        self.asked.push(PendingSighting {
            search,
            sighting,
            left,
        });
        for command in commands {
            self.command(command).await;
        }
    }

    /// A publisher answered or did not answer at the address of its device.
    fn on_ping_result(&mut self, contact: Contact, there: bool) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.insert(contact, (there, Instant::now()));
        }
        let (searches, drops) = (&mut self.searches, &self.drops);
        self.asked.retain_mut(|asked| {
            if !asked.left.contains(&contact) {
                return true;
            }
            asked.left.retain(|other| *other != contact);
            if there {
                asked.sighting.confirmed = Some(contact.address);
            } else if !asked.left.is_empty() {
                return true;
            }
            if let Some(it) = searches.get_mut(&asked.search) {
                it.asked -= 1;
            }
            send_finding(searches, drops, asked.search, asked.sighting.clone());
            false
        });
    }

    /// Ends searches without pending results.
    async fn end_searches(&mut self) {
        self.searches.retain(|_, search| {
            let Some(report) = search.ended.filter(|_| search.asked == 0) else {
                return true;
            };
            let exhausted = search.exhausted;
            // A full or dropped receiver sees the end of the channel.
            let _ = search.to.try_send(Finding::Ended { report, exhausted });
            false
        });
        self.begin_searches().await;
    }
}

fn send_finding(
    searches: &BTreeMap<SearchId, Search>,
    drops: &Drops,
    search: SearchId,
    sighting: Sighting,
) {
    let Some(search) = searches.get(&search) else {
        return;
    };
    let publisher: PublicKey = sighting.publisher;
    let sent = search.to.try_send(Finding::Seen(Box::new(sighting)));
    if let Err(mpsc::error::TrySendError::Full(_)) = sent {
        let detail = "the searching program reads too slowly".to_owned();
        drops.record(Hop::Discovery, "finding dropped", publisher, detail, None);
    }
}

/// The command that publishes a device: parts that do not fit are left out, the least important first.
fn publication(slot: u16, mut announcement: Announcement, port: u16) -> Command {
    announcement.port = port;
    let mut keys = announcement.keys();
    keys.truncate(KEYS_MAX);
    let mut value = announcement.to_bytes();
    while value.is_none() {
        // Their keys still find it by scopes and types.
        let lists = [
            &mut announcement.scopes,
            &mut announcement.types,
            &mut announcement.addresses,
        ];
        let longest = lists.into_iter().max_by_key(|list| {
            let bytes: usize = list.iter().map(|text| text.len() + 2).sum();
            bytes
        });
        match longest.and_then(Vec::pop) {
            Some(_) => value = announcement.to_bytes(),
            None => break,
        }
    }
    match value {
        Some(value) => Command::Publish { slot, keys, value },
        // An endpoint that alone fills a record.
        None => Command::Withdraw { slot },
    }
}

async fn store_contacts(path: PathBuf, contacts: Vec<Contact>, drops: Drops) {
    let kept = tokio::task::spawn_blocking(move || write_contacts(&path, contacts.into_iter()));
    if let Ok(Err(error)) = kept.await {
        let hint = Some("check that the data directory is writable".to_owned());
        let detail = error.to_string();
        drops.record(Hop::Network, "contacts not kept", "", detail, hint);
    }
}

#[cfg(test)]
mod tests {
    use chappe_kad::VALUE_BYTES_MAX;

    use super::*;

    #[test]
    fn omitted_parts_are_still_found() {
        let announcement = Announcement {
            endpoint: "urn:uuid:1".to_owned(),
            types: (0..30)
                .map(|n| format!("{{http://example.org}}T{n}"))
                .collect(),
            scopes: (0..30)
                .map(|n| format!("http://example.org/{n:040}"))
                .collect(),
            addresses: vec!["http://192.0.2.7:80/".to_owned()],
            ..Announcement::default()
        };
        let keys = announcement.keys();
        let Command::Publish {
            keys: of, value, ..
        } = publication(3, announcement, 4_000)
        else {
            panic!("it fits");
        };
        assert_eq!(of, keys);
        assert!(value.len() <= VALUE_BYTES_MAX);
        let said = Announcement::from_bytes(&value).expect("it is one");
        assert_eq!((said.port, said.addresses.len()), (4_000, 1));
        let endless = Announcement {
            endpoint: "x".repeat(VALUE_BYTES_MAX),
            ..Announcement::default()
        };
        let refused = publication(3, endless, 4_000);
        assert_eq!(refused, Command::Withdraw { slot: 3 });
    }
}
