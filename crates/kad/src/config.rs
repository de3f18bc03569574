//! The settings of a node: their meaning, defaults and reasons.

use core::time::Duration;

use crate::{Membership, Reach};

/// Bits by which the contacts of a bucket are spread: a full bucket has one contact in each of 16
/// cells, so nodes crowded at one position fill one cell, and a hop decides about five bits.
pub(crate) const SPREAD_BITS: u32 = 4;
/// Contacts requested on the path to a key. Reason: more make the answer longer than the hop gains.
pub(crate) const FIND_CONTACTS: u8 = 8;
/// Contacts requested within a region. Reason: they fit one packet, with certificate and IPv6.
pub(crate) const REGION_CONTACTS: u8 = 16;
/// Unanswered requests after which a contact is removed, if another waits to replace it.
pub(crate) const FAILURES_MAX: u8 = 2;
/// Unanswered requests after which a contact is removed in any case.
pub(crate) const FAILURES_LAST: u8 = 4;
/// Estimates of the network's size; their median is used.
pub(crate) const ESTIMATES_MAX: usize = 15;
/// The factor by which an answer to an unconfirmed address may be longer than the request.
pub const AMPLIFICATION_MAX: usize = 3;

/// The settings of a node. [`Config::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Rises with every start of the node, even after its state was restored from a backup: the greater of
    /// the last value plus 1, synced to disk before use, and the time of day in seconds.
    pub boot: u32,
    /// 32 unpredictable bytes, new at every start: the secret of address tokens and the source of random
    /// choices.
    pub seed: [u8; 32],
    /// Only queries: the node is in no routing table and stores nothing. Default false. For the
    /// smallest devices.
    pub client: bool,
    /// The addresses named by other nodes that this node may send to.
    pub reach: Reach,
    /// The network of one owner. Default none: every node may join.
    pub membership: Option<Membership>,

    /// Contacts in a bucket (k). Default 16, one in each cell of [`Config`]'s spread.
    pub bucket_contacts: usize,
    /// Contacts that wait to enter a bucket. Default 4.
    pub bucket_spares: usize,
    /// Contacts of the table with one IPv4 address, or one /64 of IPv6. Default 4; addresses of this
    /// host are not counted.
    pub host_contacts: usize,
    /// Approximate number of nodes that a record is stored at: the region of a key is the places
    /// that share leading bits with it, as many bits as leave this number to twice as many nodes.
    /// Default 20.
    pub region_nodes: u32,
    /// Maximum number of nodes of a region that a record is stored at. Default 256. More than twice
    /// `region_nodes` are there only when somebody has crowded the region.
    pub region_nodes_max: usize,
    /// Paths of a lookup that share no node (d). Default 4.
    pub paths: usize,
    /// Requests in flight on each path of a lookup (alpha). Default 1: with 4 paths, 4 in total.
    pub parallel: usize,
    /// Most nodes that one lookup queries. Default 160.
    pub lookup_asks: u32,
    /// Different nodes of a region whose records a search joins. Default 3: one may withhold some.
    pub search_replicas: u32,
    /// Nodes of a region that must report no records before a search concludes that there are none. Default
    /// 8; more where the region is crowded.
    pub search_denials: u32,
    /// Most nodes of a region that a search queries for records. Default 256.
    pub search_asks: u32,
    /// Records stored at once of one publication. Default 4.
    pub store_parallel: usize,

    /// Peers whose secret, replay window and limits are kept. Default 512, of 170 bytes.
    pub peers_max: usize,
    /// Lookups, publications and searches that run at a time; others wait. Default 8.
    pub tasks_max: usize,
    /// Publications of this node, and searches of its application. Default 256.
    pub publications_max: usize,
    /// Maximum size of records stored for others in bytes. Default 4 MiB.
    pub store_bytes: usize,
    /// Records at one position; more go one level of salt down. Default 256: most networks have no more
    /// devices, and are searched without the 16 positions below.
    pub place_records: usize,
    /// Records of one publisher. Default 256.
    pub publisher_records: usize,
    /// The share of the store that one host may fill, as a divisor. Default 4: a quarter.
    pub host_store_share: usize,
    /// Packets a second from one host. Default 500, twice as many at once.
    pub host_packets_per_s: u32,
    /// Slots by which hosts are counted; two may share one. Default 256, of 16 bytes.
    pub host_slots: usize,
    /// Requests a second from one peer. Default 100, twice as many at once.
    pub peer_requests_per_s: u32,
    /// New keys of unknown nodes that are processed each second. Default 1,000, twice as many at once:
    /// each costs about 60 microseconds.
    pub strangers_per_s: u32,

    /// The first wait for an answer, and the bounds of the later ones. Default 500 ms; 50 ms to 3 s.
    pub timeout: (Duration, Duration, Duration),
    /// Lifetime of a record without renewal. Default 1 h.
    pub lifetime: Duration,
    /// Interval at which own records are renewed, shortened by up to a tenth. Default 20 min: two
    /// may fail.
    pub republish: Duration,
    /// The time without a lookup in its range after which a bucket is refreshed. Default 1 h.
    pub refresh: Duration,
    /// The silence after which a contact is pinged, if another waits to replace it. Default 10 min.
    pub silence: Duration,
    /// The minimum time for which an address token is accepted. Default 5 min; twice as long at most.
    pub token: Duration,
    /// The interval of housekeeping. Default 60 s.
    pub housekeeping: Duration,
    /// Time for which a search without credit is kept. Default 60 s.
    pub search_idle: Duration,
}

impl Config {
    /// The defaults, for these required settings.
    #[must_use]
    pub fn new(boot: u32, seed: [u8; 32]) -> Self {
        Self {
            boot,
            seed,
            client: false,
            reach: Reach::default(),
            membership: None,
            bucket_contacts: 16,
            bucket_spares: 4,
            host_contacts: 4,
            region_nodes: 20,
            region_nodes_max: 256,
            paths: 4,
            parallel: 1,
            lookup_asks: 160,
            search_replicas: 3,
            search_denials: 8,
            search_asks: 256,
            store_parallel: 4,
            peers_max: 512,
            tasks_max: 8,
            publications_max: 256,
            store_bytes: 4 << 20,
            place_records: 256,
            publisher_records: 256,
            host_store_share: 4,
            host_packets_per_s: 500,
            host_slots: 256,
            peer_requests_per_s: 100,
            strangers_per_s: 1_000,
            timeout: (
                Duration::from_millis(500),
                Duration::from_millis(50),
                Duration::from_secs(3),
            ),
            lifetime: Duration::from_secs(3_600),
            republish: Duration::from_secs(1_200),
            refresh: Duration::from_secs(3_600),
            silence: Duration::from_secs(600),
            token: Duration::from_secs(300),
            housekeeping: Duration::from_secs(60),
            search_idle: Duration::from_secs(60),
        }
    }

    /// Clamps every setting to the range that the machine relies on.
    pub(crate) fn clamped(mut self) -> Self {
        self.bucket_contacts = self.bucket_contacts.clamp(2, 64);
        self.bucket_spares = self.bucket_spares.min(64);
        self.host_contacts = self.host_contacts.max(1);
        self.region_nodes = self.region_nodes.clamp(1, 1_000);
        self.region_nodes_max = self.region_nodes_max.clamp(1, 1_000);
        self.paths = self.paths.clamp(1, 16);
        self.parallel = self.parallel.clamp(1, 8);
        self.lookup_asks = self.lookup_asks.clamp(1, 10_000);
        self.search_replicas = self.search_replicas.max(1);
        self.search_denials = self.search_denials.max(1);
        self.search_asks = self.search_asks.clamp(1, 10_000);
        self.store_parallel = self.store_parallel.clamp(1, 64);
        self.peers_max = self.peers_max.max(8);
        self.tasks_max = self.tasks_max.max(1);
        self.place_records = self.place_records.clamp(1, usize::from(u16::MAX));
        self.host_store_share = self.host_store_share.max(1);
        self.host_slots = self.host_slots.max(1);
        self.timeout.1 = self.timeout.1.max(Duration::from_millis(1));
        self.timeout.2 = self.timeout.2.max(self.timeout.1);
        self.timeout.0 = self.timeout.0.clamp(self.timeout.1, self.timeout.2);
        let second = Duration::from_secs(1);
        let longest = Duration::from_secs(crate::LIFETIME_S_MAX.into());
        self.lifetime = self.lifetime.clamp(second, longest);
        for wait in [
            &mut self.republish,
            &mut self.refresh,
            &mut self.silence,
            &mut self.token,
            &mut self.housekeeping,
            &mut self.search_idle,
        ] {
            *wait = (*wait).max(second);
        }
        self
    }
}
