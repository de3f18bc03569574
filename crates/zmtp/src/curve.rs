//! CURVE: the handshake and the encryption of messages (25/ZMTP-CURVE, 26/CURVEZMQ).
//!
//! With the cookie of the specification a server can forget a client between HELLO and INITIATE. Here a connection
//! keeps its state, so the cookie consists of random bytes that must be returned.
//!
//! Comments use the specification's names of keys: C and S are the permanent keys of client and server, C' and S' the
//! transient ones of the connection.

use crypto_box::aead::AeadInPlace as _;
use crypto_box::{PublicKey, SalsaBox, SecretKey};
use curve25519_dalek::MontgomeryPoint;
use salsa20::XSalsa20;
use salsa20::cipher::{KeyIvInit as _, StreamCipher as _};

use crate::config::{Allowed, KEY_BYTES};
use crate::error::Error;

/// The overhead of a box.
pub(crate) const BOX_BYTES: usize = 16;
const COOKIE_BYTES: usize = 96;
const LONG_NONCE_BYTES: usize = 16;
const SHORT_NONCE_BYTES: usize = 8;
const HELLO_BYTES: usize = 200;
const WELCOME_BYTES: usize = 168;
const INITIATE_BYTES_MIN: usize = 257;
const READY_BYTES_MIN: usize = 30;
/// The name, nonce, box and flags of a MESSAGE.
pub(crate) const MESSAGE_BYTES_MIN: usize = 8 + SHORT_NONCE_BYTES + BOX_BYTES + 1;
/// The flag of a payload that is a command. Not in 26/CURVEZMQ, but used by libzmq and compatible peers.
pub(crate) const PAYLOAD_COMMAND: u8 = 2;

/// The public half of a secret key.
#[must_use]
pub fn public_key(secret: &crate::SecretKey) -> [u8; KEY_BYTES] {
    *SecretKey::from(secret.0).public_key().as_bytes()
}

/// Random bytes from a connection's seed.
pub(crate) struct Randomness(XSalsa20);

impl Randomness {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        Self(XSalsa20::new(seed.into(), &[0; 24].into()))
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.apply_keystream(&mut bytes);
        bytes
    }
}

fn nonce(prefix: &[u8], rest: &[u8]) -> crypto_box::Nonce {
    let mut nonce = crypto_box::Nonce::default();
    nonce[..prefix.len()].copy_from_slice(prefix);
    nonce[prefix.len()..].copy_from_slice(rest);
    nonce
}

/// Seals `plain` at the end of `out`.
fn seal(out: &mut Vec<u8>, key: &SalsaBox, nonce: &crypto_box::Nonce, plain: &[&[u8]]) {
    let start = out.len();
    out.extend_from_slice(&[0; BOX_BYTES]);
    for part in plain {
        out.extend_from_slice(part);
    }
    seal_in_place(&mut out[start..], key, nonce);
}

/// Seals the bytes after the first `BOX_BYTES` of `bytes`.
fn seal_in_place(bytes: &mut [u8], key: &SalsaBox, nonce: &crypto_box::Nonce) {
    let (tag, plain) = bytes.split_at_mut(BOX_BYTES);
    match key.encrypt_in_place_detached(nonce, &[], plain) {
        Ok(made) => tag.copy_from_slice(&made),
        // Fails only above 2^38 bytes.
        Err(_) => unreachable!("a message is shorter than the cipher's limit"),
    }
}

/// Opens a box in place.
fn open<'a>(
    bytes: &'a mut [u8],
    key: &SalsaBox,
    nonce: &crypto_box::Nonce,
    what: &'static str,
) -> Result<&'a mut [u8], Error> {
    let (tag, sealed) = bytes
        .split_at_mut_checked(BOX_BYTES)
        .ok_or(Error::Key { what })?;
    let tag = crypto_box::Tag::from_slice(tag);
    match key.decrypt_in_place_detached(nonce, &[], sealed, tag) {
        Ok(()) => Ok(sealed),
        Err(_) => Err(Error::Key { what }),
    }
}

/// Whether the secret shared by this key and `secret` is public knowledge: such a key proves nothing.
fn is_low_order(public: &[u8; KEY_BYTES], secret: &SecretKey) -> bool {
    MontgomeryPoint(*public).mul_clamped(secret.to_bytes()).0 == [0; 32]
}

/// The encryption of an open connection, in both directions.
pub(crate) struct Session {
    key: SalsaBox,
    server: bool,
    /// The last short nonce of this end.
    sent: u64,
    /// The last short nonce of the peer.
    seen: u64,
}

impl Session {
    const fn prefix(server: bool) -> &'static [u8; 16] {
        match server {
            true => b"CurveZMQMESSAGES",
            false => b"CurveZMQMESSAGEC",
        }
    }

    /// Writes the body of a MESSAGE.
    pub(crate) fn seal(&mut self, out: &mut bytes::BytesMut, flags: u8, payload: &[u8]) {
        self.sent += 1;
        let short = self.sent.to_be_bytes();
        out.extend_from_slice(b"\x07MESSAGE");
        out.extend_from_slice(&short);
        let start = out.len();
        out.extend_from_slice(&[0; BOX_BYTES]);
        out.extend_from_slice(&[flags]);
        out.extend_from_slice(payload);
        let nonce = nonce(Self::prefix(self.server), &short);
        seal_in_place(&mut out[start..], &self.key, &nonce);
    }

    /// Opens the body of a MESSAGE in place. Returns the flags, and the offset of the payload.
    pub(crate) fn open(&mut self, body: &mut [u8], offset: u64) -> Result<(u8, usize), Error> {
        let protocol = |what| Error::Protocol { what, offset };
        if body.len() < MESSAGE_BYTES_MIN || !body.starts_with(b"\x07MESSAGE") {
            return Err(protocol("a MESSAGE was expected"));
        }
        let (head, sealed) = body.split_at_mut(8 + SHORT_NONCE_BYTES);
        let short = take_nonce(&mut self.seen, &head[8..]).ok_or(protocol(NONCE_REPEATED))?;
        let nonce = nonce(Self::prefix(!self.server), &short);
        let payload = open(sealed, &self.key, &nonce, "message")?;
        let flags = payload[0];
        if flags & !(crate::frame::MORE | PAYLOAD_COMMAND) != 0 {
            return Err(protocol("reserved flags of a payload are set"));
        }
        Ok((flags, MESSAGE_BYTES_MIN))
    }
}

const NONCE_REPEATED: &str = "a nonce does not increase";

/// Reads the short nonce in `bytes`, which must be above the last one and replaces it.
fn take_nonce(seen: &mut u64, bytes: &[u8]) -> Option<[u8; SHORT_NONCE_BYTES]> {
    let short: [u8; SHORT_NONCE_BYTES] = bytes.try_into().ok()?;
    let number = u64::from_be_bytes(short);
    (number > *seen).then(|| *seen = number).map(|()| short)
}

/// A client that has sent HELLO.
pub(crate) struct ClientHello {
    /// C, S and C'.
    permanent: SecretKey,
    server: PublicKey,
    transient: SecretKey,
}

impl ClientHello {
    /// Starts: returns the state, and the HELLO to send.
    pub(crate) fn start(
        secret: &crate::SecretKey,
        server: &[u8; KEY_BYTES],
        random: &mut Randomness,
    ) -> (Self, Vec<u8>) {
        let hello = Self {
            permanent: SecretKey::from(secret.0),
            server: PublicKey::from(*server),
            transient: SecretKey::from(random.bytes::<KEY_BYTES>()),
        };
        let mut out = Vec::with_capacity(HELLO_BYTES);
        out.extend_from_slice(b"\x05HELLO\x01\x00");
        out.extend_from_slice(&[0; 72]);
        out.extend_from_slice(hello.transient.public_key().as_bytes());
        let short = 1u64.to_be_bytes();
        out.extend_from_slice(&short);
        let key = SalsaBox::new(&hello.server, &hello.transient);
        let nonce = nonce(b"CurveZMQHELLO---", &short);
        seal(&mut out, &key, &nonce, &[&[0; 64]]);
        (hello, out)
    }

    /// Processes WELCOME: returns the session, and the INITIATE to send with these properties.
    pub(crate) fn welcome(
        self,
        body: &mut [u8],
        properties: &[u8],
        random: &mut Randomness,
        offset: u64,
    ) -> Result<(Session, Vec<u8>), Error> {
        if body.len() != WELCOME_BYTES || !body.starts_with(b"\x07WELCOME") {
            return Err(Error::Protocol {
                what: "a WELCOME was expected",
                offset,
            });
        }
        let (head, sealed) = body.split_at_mut(8 + LONG_NONCE_BYTES);
        let key = SalsaBox::new(&self.server, &self.transient);
        let plain = open(sealed, &key, &nonce(b"WELCOME-", &head[8..]), "WELCOME")?;
        let (their_key, cookie) = plain.split_at(KEY_BYTES);
        let mut server_transient = [0; KEY_BYTES];
        server_transient.copy_from_slice(their_key);
        let server_transient = PublicKey::from(server_transient);
        let session_key = SalsaBox::new(&server_transient, &self.transient);

        let mut vouch = random.bytes::<LONG_NONCE_BYTES>().to_vec();
        let vouch_nonce = nonce(b"VOUCH---", &vouch);
        let vouch_key = SalsaBox::new(&server_transient, &self.permanent);
        let transient = self.transient.public_key();
        let vouched: [&[u8]; 2] = [transient.as_bytes(), self.server.as_bytes()];
        seal(&mut vouch, &vouch_key, &vouch_nonce, &vouched);

        let mut out = b"\x08INITIATE".to_vec();
        out.extend_from_slice(cookie);
        let short = 2u64.to_be_bytes();
        out.extend_from_slice(&short);
        let nonce = nonce(b"CurveZMQINITIATE", &short);
        let public = self.permanent.public_key();
        let told: [&[u8]; 3] = [public.as_bytes(), &vouch, properties];
        seal(&mut out, &session_key, &nonce, &told);
        let session = Session {
            key: session_key,
            server: false,
            sent: 2,
            seen: 0,
        };
        Ok((session, out))
    }
}

impl Session {
    /// Client: processes READY, and returns the server's properties.
    pub(crate) fn ready<'a>(&mut self, body: &'a mut [u8], offset: u64) -> Result<&'a [u8], Error> {
        let protocol = |what| Error::Protocol { what, offset };
        if body.len() < READY_BYTES_MIN || !body.starts_with(b"\x05READY") {
            return Err(protocol("a READY was expected"));
        }
        let (head, sealed) = body.split_at_mut(6 + SHORT_NONCE_BYTES);
        let short = take_nonce(&mut self.seen, &head[6..]).ok_or(protocol(NONCE_REPEATED))?;
        let nonce = nonce(b"CurveZMQREADY---", &short);
        Ok(open(sealed, &self.key, &nonce, "READY")?)
    }
}

/// A server that has sent WELCOME.
pub(crate) struct ServerWelcome {
    /// S, C' and S'.
    permanent: SecretKey,
    client: PublicKey,
    transient: SecretKey,
    cookie: [u8; COOKIE_BYTES],
    seen: u64,
}

impl ServerWelcome {
    /// Processes HELLO: returns the state, and the WELCOME to send.
    pub(crate) fn hello(
        secret: &crate::SecretKey,
        body: &mut [u8],
        random: &mut Randomness,
        offset: u64,
    ) -> Result<(Self, Vec<u8>), Error> {
        let protocol = |what| Error::Protocol { what, offset };
        if body.len() != HELLO_BYTES || !body.starts_with(b"\x05HELLO") {
            return Err(protocol("a HELLO was expected"));
        }
        if body[6..8] != [1, 0] {
            return Err(protocol("the version of CURVE is not 1.0"));
        }
        let (head, sealed) = body.split_at_mut(120);
        if head[8..80].iter().any(|byte| *byte != 0) {
            return Err(protocol("the padding of a HELLO is not zero"));
        }
        let mut client = [0; KEY_BYTES];
        client.copy_from_slice(&head[80..112]);
        let client = PublicKey::from(client);
        let mut seen = 0;
        let short = take_nonce(&mut seen, &head[112..]).ok_or(protocol(NONCE_REPEATED))?;
        let permanent = SecretKey::from(secret.0);
        // C' and S share this key in both directions.
        let key = SalsaBox::new(&client, &permanent);
        let plain = open(sealed, &key, &nonce(b"CurveZMQHELLO---", &short), "HELLO")?;
        if plain.iter().any(|byte| *byte != 0) {
            return Err(protocol("the box of a HELLO is not zero"));
        }
        let welcome = Self {
            permanent,
            client,
            transient: SecretKey::from(random.bytes::<KEY_BYTES>()),
            cookie: random.bytes(),
            seen,
        };
        let long = random.bytes::<LONG_NONCE_BYTES>();
        let mut out = Vec::with_capacity(WELCOME_BYTES);
        out.extend_from_slice(b"\x07WELCOME");
        out.extend_from_slice(&long);
        let transient = welcome.transient.public_key();
        let told: [&[u8]; 2] = [transient.as_bytes(), &welcome.cookie];
        seal(&mut out, &key, &nonce(b"WELCOME-", &long), &told);
        Ok((welcome, out))
    }

    /// Processes INITIATE: returns the session, the client's permanent key and its properties.
    pub(crate) fn initiate<'a>(
        mut self,
        body: &'a mut [u8],
        allowed: &Allowed,
        offset: u64,
    ) -> Result<(Session, [u8; KEY_BYTES], &'a [u8]), Error> {
        let protocol = |what| Error::Protocol { what, offset };
        if body.len() < INITIATE_BYTES_MIN || !body.starts_with(b"\x08INITIATE") {
            return Err(protocol("an INITIATE was expected"));
        }
        let (head, sealed) = body.split_at_mut(9 + COOKIE_BYTES + SHORT_NONCE_BYTES);
        let (cookie, short) = head[9..].split_at(COOKIE_BYTES);
        // The boxes authenticate, not the cookie, so the comparison need not be constant-time.
        if cookie != self.cookie {
            return Err(protocol("the cookie differs"));
        }
        let short = take_nonce(&mut self.seen, short).ok_or(protocol(NONCE_REPEATED))?;
        let key = SalsaBox::new(&self.client, &self.transient);
        let plain = open(
            sealed,
            &key,
            &nonce(b"CurveZMQINITIATE", &short),
            "INITIATE",
        )?;
        let (told, properties) = plain.split_at_mut(KEY_BYTES + LONG_NONCE_BYTES + 80);
        let (public, vouch) = told.split_at_mut(KEY_BYTES);
        let mut client = [0; KEY_BYTES];
        client.copy_from_slice(public);
        if is_low_order(&client, &self.transient) {
            return Err(Error::Key { what: "vouch" });
        }
        let (long, vouch) = vouch.split_at_mut(LONG_NONCE_BYTES);
        let vouch_key = SalsaBox::new(&PublicKey::from(client), &self.transient);
        let vouched = open(vouch, &vouch_key, &nonce(b"VOUCH---", long), "vouch")?;
        let server = self.permanent.public_key();
        if vouched[..KEY_BYTES] != *self.client.as_bytes()
            || vouched[KEY_BYTES..] != *server.as_bytes()
        {
            return Err(Error::Key { what: "vouch" });
        }
        if !allowed.allows(&client) {
            return Err(Error::NotAllowed { key: client });
        }
        let session = Session {
            key,
            server: true,
            sent: 0,
            seen: self.seen,
        };
        Ok((session, client, properties))
    }
}

impl Session {
    /// Server: returns the READY to send with these properties.
    pub(crate) fn write_ready(&mut self, properties: &[u8]) -> Vec<u8> {
        self.sent += 1;
        let short = self.sent.to_be_bytes();
        let mut out = b"\x05READY".to_vec();
        out.extend_from_slice(&short);
        let nonce = nonce(b"CurveZMQREADY---", &short);
        seal(&mut out, &self.key, &nonce, &[properties]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_small_order_prove_nothing() {
        let secret = SecretKey::from([7; 32]);
        let mut one = [0; KEY_BYTES];
        one[0] = 1;
        assert!(is_low_order(&[0; KEY_BYTES], &secret));
        assert!(is_low_order(&one, &secret));
        let real = public_key(&crate::SecretKey([9; KEY_BYTES]));
        assert!(!is_low_order(&real, &secret));
    }
}
