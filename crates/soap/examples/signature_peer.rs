//! Canonical forms and signed messages on the command line, for checks with other implementations:
//!
//!     signature_peer canonical [PREFIX_LIST]         documents of stdin, each followed by a zero byte
//!     signature_peer sign KEY CERTIFICATES UNIX_S    the envelope of stdin
//!     signature_peer verify ROOTS UNIX_S [--sha1]    the envelope of stdin; prints signer and Body
//!
//! Exit code 0 when it worked, 1 when a message is refused, 2 otherwise.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use chappe_identity::certificate::{Certificate, SigningKey, TrustStore};
use chappe_soap::security::{Policy, ReplayCache, Signer, verify};
use chappe_xml::canonical::{Exclusive, canonicalize};
use chappe_xml::{Element, Limits};
use ring::rand::SystemRandom;

const USAGE: &str = "usage: signature_peer canonical [PREFIX_LIST] | sign KEY CERTIFICATES UNIX_S | verify ROOTS UNIX_S [--sha1]";

/// A message that is refused.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Refused {}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(if error.is::<Refused>() { 1 } else { 2 })
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    match arguments[..] {
        ["canonical"] => canonical(&input, ""),
        ["canonical", prefixes] => canonical(&input, prefixes),
        ["sign", key, certificates, unix_s] => {
            let random = SystemRandom::new();
            let key = SigningKey::from_pem(&std::fs::read_to_string(key)?, &random)?;
            let certificates = Certificate::from_pem(&std::fs::read_to_string(certificates)?)?;
            let signer = Signer::new(key, certificates)?;
            let signed = signer.sign(&Element::parse(&input)?, unix_s.parse()?, &random)?;
            Ok(std::io::stdout().write_all(signed.as_bytes())?)
        }
        ["verify", roots, unix_s] => accept(&input, roots, unix_s, false),
        ["verify", roots, unix_s, "--sha1"] => accept(&input, roots, unix_s, true),
        _ => Err(USAGE.into()),
    }
}

fn canonical(input: &[u8], prefixes: &str) -> Result<(), Box<dyn Error>> {
    let exclusive = Exclusive::default().with_prefix_list(prefixes)?;
    let mut output = Vec::new();
    for document in input.split(|byte| *byte == 0).filter(|it| !it.is_empty()) {
        let sink = |bytes: &[u8]| output.extend_from_slice(bytes);
        canonicalize(document, &exclusive, Limits::default(), sink)?;
        output.push(0);
    }
    Ok(std::io::stdout().write_all(&output)?)
}

fn accept(
    input: &[u8],
    roots: &str,
    unix_s: &str,
    allows_sha1: bool,
) -> Result<(), Box<dyn Error>> {
    let trust = TrustStore::from_pem(&std::fs::read_to_string(roots)?)?;
    let policy = Policy {
        allows_sha1,
        ..Policy::default()
    };
    let replays = &mut ReplayCache::empty();
    let verified = verify(input, &policy, &trust, replays, unix_s.parse()?);
    let verified = verified.map_err(|error| Refused(error.to_string()))?;
    println!("{}", verified.certificate.subject());
    println!("{}", verified.body.to_text());
    Ok(())
}
