//! The pairwise side of the protocol: secrets, tags, numbers, address tokens, membership, limits.
//!
//! Each packet except the first `Greet` carries a tag under the secret of sender and receiver, so
//! nobody can speak for a key without holding it. Requests of one sender have increasing numbers; a
//! window drops repeated ones. A token proves to its issuer that the sender receives at its
//! address. It is derived from a local secret, so the issuer stores nothing for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use chappe_identity::PublicKey;
use chappe_machine::{Instant, ReplayWindow, TokenBucket, TokenRate};

use crate::contact::{PackedAddress, host};
use crate::cryptography::{Cryptography, SECRET_BYTES, Secret, TAG_BYTES, same_tag};
use crate::error::Drop;
use crate::message::{AROUND_BYTES, PACKET_BYTES_MAX};
use crate::{Body, Config, Contact, Key, Packet};

/// Packets per second, and the burst is twice that.
fn rate(per_s: u32) -> TokenRate {
    let per_s = u64::from(per_s.max(1));
    TokenRate {
        per_s,
        burst: 2 * per_s,
    }
}

/// The state of a peer.
#[derive(Debug)]
struct Peer {
    secret: Secret,
    /// The last number that was sent to it.
    sent: u64,
    received: ReplayWindow,
    /// The token that it issued to this node, and when.
    token: (u64, Instant),
    /// The expiry of its certificate, in seconds since 1970; 0: none was shown.
    member_until_s: u64,
    requests: TokenBucket,
    /// Rises with each use: the peer with the lowest is removed first.
    used: u64,
    /// This node contacted it first.
    chosen: bool,
}

/// A packet whose tag is valid.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) packet: Packet,
    /// The sender receives at the address that it sent from.
    pub(crate) validated: bool,
    /// It is a greeting without the certificate that this network needs.
    pub(crate) stranger: bool,
    /// Length of the packet in bytes.
    pub(crate) bytes: usize,
}

/// All peers of a node.
#[derive(Debug)]
pub(crate) struct Peers<C> {
    cryptography: C,
    public: PublicKey,
    place: Key,
    config: Config,
    peers: BTreeMap<PublicKey, Peer>,
    strangers: usize,
    /// New peers get numbers above this one: a peer that was removed may have seen the lower ones.
    sent_floor: u64,
    uses: u64,
    token_secret: Secret,
    host_salt: u64,
    hosts: Vec<TokenBucket>,
    unknown_keys: TokenBucket,
    /// The seconds since 1970 at the machine's origin of time, if known.
    origin_unix_s: Option<i64>,
    /// Packets dropped, by reason.
    drops: [u64; Drop::ALL.len()],
}

impl<C: Cryptography> Peers<C> {
    pub(crate) fn new(cryptography: C, config: Config, now: Instant) -> Self {
        let public = cryptography.public();
        let place = cryptography.place(&public);
        // One secret for tokens and one number for slots; neither reveals the seed.
        let purpose = |purpose: &[u8]| cryptography.tag(&config.seed, &[purpose]);
        let mut token_secret = [0; SECRET_BYTES];
        token_secret[..TAG_BYTES].copy_from_slice(&purpose(b"token 1"));
        token_secret[TAG_BYTES..].copy_from_slice(&purpose(b"token 2"));
        let host_salt = first_eight(&purpose(b"hosts"));
        Self {
            public,
            place,
            peers: BTreeMap::new(),
            strangers: 0,
            sent_floor: u64::from(config.boot) << 32,
            uses: 0,
            token_secret,
            host_salt,
            hosts: vec![TokenBucket::full(now, rate(config.host_packets_per_s)); config.host_slots],
            unknown_keys: TokenBucket::full(now, rate(config.strangers_per_s)),
            origin_unix_s: None,
            drops: [0; Drop::ALL.len()],
            cryptography,
            config,
        }
    }

    /// The cryptography.
    pub(crate) fn cryptography(&self) -> &C {
        &self.cryptography
    }

    /// The own public key.
    #[must_use]
    pub(crate) fn public(&self) -> PublicKey {
        self.public
    }

    /// The own place.
    #[must_use]
    pub(crate) fn place(&self) -> Key {
        self.place
    }

    /// The number of packets dropped for a reason.
    #[must_use]
    pub(crate) fn dropped(&self, reason: Drop) -> u64 {
        self.drops[reason as usize]
    }

    /// The number of peers.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn set_time_of_day(&mut self, now: Instant, unix_s: u64) {
        let now_s = i64::try_from((now - Instant::ZERO).as_secs()).unwrap_or(i64::MAX);
        let unix_s = i64::try_from(unix_s).unwrap_or(i64::MAX);
        self.origin_unix_s = Some(unix_s.saturating_sub(now_s));
    }

    /// The seconds since 1970, if known.
    pub(crate) fn unix_s(&self, now: Instant) -> Option<u64> {
        let now_s = i64::try_from((now - Instant::ZERO).as_secs()).unwrap_or(i64::MAX);
        u64::try_from(self.origin_unix_s?.saturating_add(now_s)).ok()
    }

    pub(crate) fn drop_packet(&mut self, reason: Drop) {
        self.drops[reason as usize] += 1;
    }

    fn token(&self, public: &PublicKey, address: SocketAddr, epoch: u64) -> u64 {
        let ip = match address.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            std::net::IpAddr::V6(ip) => ip,
        };
        let tag = self.cryptography.tag(
            &self.token_secret,
            &[
                &epoch.to_be_bytes(),
                &ip.octets(),
                &address.port().to_be_bytes(),
                public.as_bytes(),
            ],
        );
        // 0 means none.
        first_eight(&tag).max(1)
    }

    fn epoch(&self, now: Instant) -> u64 {
        (now - Instant::ZERO).as_secs() / self.config.token.as_secs().max(1)
    }

    /// Whether a token was issued to this key at this address recently.
    fn is_valid(&self, now: Instant, public: &PublicKey, address: SocketAddr, token: u64) -> bool {
        let epoch = self.epoch(now);
        token != 0
            && (token == self.token(public, address, epoch)
                || epoch > 0 && token == self.token(public, address, epoch - 1))
    }

    fn tag(&self, secret: &Secret, receiver: &PublicKey, under: &[u8]) -> [u8; TAG_BYTES] {
        self.cryptography.tag(secret, &[receiver.as_bytes(), under])
    }

    fn add(&mut self, now: Instant, public: PublicKey, secret: Secret, chosen: bool) {
        if self.peers.len() >= self.config.peers_max {
            self.evict();
        }
        self.strangers += usize::from(!chosen);
        self.uses += 1;
        let peer = Peer {
            secret,
            sent: self.sent_floor,
            received: ReplayWindow::default(),
            token: (0, now),
            member_until_s: 0,
            requests: TokenBucket::full(now, rate(self.config.peer_requests_per_s)),
            used: self.uses,
            chosen,
        };
        self.peers.insert(public, peer);
    }

    /// Removes the least recently used peer: a stranger while strangers have more than half.
    fn evict(&mut self) {
        let strangers_first = self.strangers * 2 > self.config.peers_max;
        let oldest = self
            .peers
            .iter()
            .filter(|(_, peer)| !(strangers_first && peer.chosen))
            .min_by_key(|(_, peer)| peer.used)
            .map(|(public, _)| *public);
        if let Some(peer) = oldest.and_then(|public| self.peers.remove(&public)) {
            self.sent_floor = self.sent_floor.max(peer.sent);
            self.strangers -= usize::from(!peer.chosen);
        }
    }

    /// The peer, created if it is new. `None` when its key is not usable.
    fn choose(&mut self, now: Instant, public: &PublicKey) -> Option<&mut Peer> {
        if !self.peers.contains_key(public) {
            let secret = self.cryptography.agree(public)?;
            self.add(now, *public, secret, true);
        }
        self.uses += 1;
        let (uses, strangers) = (self.uses, &mut self.strangers);
        let peer = self.peers.get_mut(public)?;
        peer.used = uses;
        if !peer.chosen {
            peer.chosen = true;
            *strangers -= 1;
        }
        Some(peer)
    }

    // -- sending --

    /// Whether the peer issued a token that should still be valid.
    pub(crate) fn has_token(&self, now: Instant, public: &PublicKey) -> bool {
        self.peers
            .get(public)
            .is_some_and(|peer| self.fresh_token(now, peer) != 0)
    }

    fn fresh_token(&self, now: Instant, peer: &Peer) -> u64 {
        let (token, at) = peer.token;
        if now - at < self.config.token {
            token
        } else {
            0
        }
    }

    /// Seals a request for a peer: its number and bytes. `None` when the peer's key is not usable.
    pub(crate) fn seal(
        &mut self,
        now: Instant,
        to: &PublicKey,
        body: Body,
        show_certificate: bool,
    ) -> Option<(u64, Vec<u8>)> {
        let peer = self.choose(now, to)?;
        peer.sent += 1;
        let (number, secret) = (peer.sent, peer.secret);
        let peer = self.peers.get(to)?;
        let token = self.fresh_token(now, peer);
        let membership = self.config.membership.as_ref();
        let please = membership.is_some() && !self.is_member(now, to);
        let certificate = membership
            .filter(|_| token == 0 || show_certificate)
            .map(|membership| membership.certificate);
        let packet = Packet {
            sender: self.public,
            client: self.config.client,
            please,
            number,
            token,
            certificate,
            body,
        };
        Some((number, self.finish(&packet, to, &secret)))
    }

    /// Seals the answer to a packet, with a token for the requester.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        to: Contact,
        (number, please): (u64, bool),
        body: Body,
    ) -> Option<Vec<u8>> {
        let secret = match self.peers.get(&to.public) {
            Some(peer) => peer.secret,
            None => self.cryptography.agree(&to.public)?,
        };
        let token = self.token(&to.public, to.address, self.epoch(now));
        let membership = self.config.membership.as_ref();
        let packet = Packet {
            sender: self.public,
            client: self.config.client,
            please: false,
            number,
            token,
            certificate: membership.filter(|_| please).map(|it| it.certificate),
            body,
        };
        Some(self.finish(&packet, &to.public, &secret))
    }

    fn finish(&self, packet: &Packet, to: &PublicKey, secret: &Secret) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PACKET_BYTES_MAX / 4);
        packet.write(&mut bytes);
        let tag = self.tag(secret, to, &bytes);
        bytes.extend_from_slice(&tag);
        bytes
    }

    /// Builds a greeting to an address whose key is unknown. It has no tag.
    pub(crate) fn greet(&mut self) -> (u64, Vec<u8>) {
        // Above all numbers issued so far, and no peer's number is used twice for it.
        self.sent_floor += 1;
        let answer = AROUND_BYTES;
        let own = crate::HEAD_BYTES + TAG_BYTES;
        let packet = Packet {
            sender: self.public,
            client: self.config.client,
            please: self.config.membership.is_some(),
            number: self.sent_floor,
            token: 0,
            certificate: self.config.membership.as_ref().map(|it| it.certificate),
            body: Body::Greet {
                padding: padding(own, answer),
            },
        };
        let mut bytes = Vec::new();
        packet.write(&mut bytes);
        bytes.extend_from_slice(&[0; TAG_BYTES]);
        (self.sent_floor, bytes)
    }

    // -- receiving --

    /// Opens a packet: checks form, limits, tag, number, membership and address.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Result<Opened, Drop> {
        let opened = self.try_open(now, from, bytes);
        if let Err(reason) = &opened {
            self.drop_packet(*reason);
        }
        opened
    }

    fn try_open(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Result<Opened, Drop> {
        let slot = host(&PackedAddress::from(from)) ^ self.host_salt;
        let slot = slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // Less than the number of slots.
        let slot = slot as usize % self.hosts.len();
        let of_host = rate(self.config.host_packets_per_s);
        if self.hosts[slot].take(now, 1, of_host).is_err() {
            return Err(Drop::Rate);
        }
        let (packet, under, tag) = Packet::read(bytes).map_err(|_| Drop::Malformed)?;
        if packet.sender == self.public {
            return Err(Drop::Own);
        }
        let is_greet = matches!(packet.body, Body::Greet { .. });
        let known = self.peers.get(&packet.sender).map(|peer| peer.secret);
        let of_strangers = rate(self.config.strangers_per_s);
        let secret = match known {
            Some(secret) => secret,
            None if self.unknown_keys.take(now, 1, of_strangers).is_ok() => {
                let agreed = self.cryptography.agree(&packet.sender);
                agreed.ok_or(Drop::Malformed)?
            }
            None => return Err(Drop::Strangers),
        };
        if is_greet {
            // Anybody can send it, so nothing is stored and nothing is attributed to a peer.
            if tag != [0; TAG_BYTES] {
                return Err(Drop::Malformed);
            }
            let stranger = self.check_member(now, &packet).is_err();
            return Ok(Opened {
                packet,
                validated: false,
                stranger,
                bytes: bytes.len(),
            });
        }
        if !same_tag(tag, &self.tag(&secret, &self.public, under)) {
            return Err(Drop::Tag);
        }
        if known.is_none() {
            self.add(now, packet.sender, secret, false);
        }
        let response = packet.body.is_response();
        let validated = !response && self.is_valid(now, &packet.sender, from, packet.token);
        self.uses += 1;
        let (uses, of_peer) = (self.uses, rate(self.config.peer_requests_per_s));
        if let Some(peer) = self.peers.get_mut(&packet.sender) {
            peer.used = uses;
            if response {
                peer.token = (packet.token, now);
            } else if !peer.received.accept(packet.number) {
                return Err(Drop::Replayed);
            } else if peer.requests.take(now, 1, of_peer).is_err() {
                return Err(Drop::Rate);
            }
        }
        // The answer that asks for a certificate needs none itself.
        match self.check_member(now, &packet) {
            Err(reason) if !matches!(packet.body, Body::Refused(_)) && response => {
                return Err(reason);
            }
            _ => {}
        }
        Ok(Opened {
            packet,
            validated,
            stranger: false,
            bytes: bytes.len(),
        })
    }

    /// Whether the peer has shown a valid certificate; always true where none is needed.
    pub(crate) fn is_member(&self, now: Instant, public: &PublicKey) -> bool {
        if self.config.membership.is_none() {
            return true;
        }
        let until_s = self.peers.get(public).map_or(0, |peer| peer.member_until_s);
        // A node without a clock accepts any expiry.
        until_s > self.unix_s(now).unwrap_or(0)
    }

    fn check_member(&mut self, now: Instant, packet: &Packet) -> Result<(), Drop> {
        let Some(membership) = self.config.membership else {
            return Ok(());
        };
        if self.is_member(now, &packet.sender) {
            return Ok(());
        }
        let certificate = packet.certificate.ok_or(Drop::NotMember)?;
        let good = certificate.expires_s > self.unix_s(now).unwrap_or(0)
            && certificate.is_of(&self.cryptography, &membership.owner, &packet.sender);
        if !good {
            return Err(Drop::NotMember);
        }
        if let Some(peer) = self.peers.get_mut(&packet.sender) {
            peer.member_until_s = certificate.expires_s;
        }
        Ok(())
    }

    /// Size of the state in bytes, without the allocator's overhead.
    pub(crate) fn state_bytes(&self) -> usize {
        size_of::<Self>()
            + self.peers.len() * (size_of::<PublicKey>() + size_of::<Peer>())
            + self.hosts.len() * size_of::<TokenBucket>()
    }
}

/// Zeros that pad a request of `own` bytes for an answer of `answer` bytes to an address that is
/// not confirmed.
pub(crate) fn padding(own: usize, answer: usize) -> u16 {
    let wanted = answer
        .min(PACKET_BYTES_MAX)
        .div_ceil(crate::AMPLIFICATION_MAX);
    u16::try_from(wanted.saturating_sub(own)).unwrap_or(u16::MAX)
}

fn first_eight(bytes: &[u8; TAG_BYTES]) -> u64 {
    let mut head = [0; 8];
    head.copy_from_slice(&bytes[..8]);
    u64::from_be_bytes(head)
}
