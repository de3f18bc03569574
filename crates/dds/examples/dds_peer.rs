//! A writer or reader of numbered octets, for trials with other DDS programs.
//!
//! ```text
//! dds_peer [--interface ADDRESS] ...       uses an interface other than 127.0.0.1
//! dds_peer [--security AUTHORITY NAME] ... is secure, by files of `chappe dds keys AUTHORITY NAME`
//! dds_peer idl                             prints the IDL of the type
//! dds_peer write DOMAIN TOPIC COUNT BYTES  writes once a reader is found, until all samples are acknowledged,
//!                                          and stays until its input ends
//! dds_peer read DOMAIN TOPIC COUNT         prints the received samples: count, missing, repeated, bytes
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use chappe_dds::{
    Bytes, Durability, Octets, Participant, ParticipantConfig, Qos, SecurityConfig, Topic, open,
    write_within,
};

const WINDOW: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(120);

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut words: &[&str] = &words.iter().map(String::as_str).collect::<Vec<_>>();
    let mut own = ParticipantConfig::default();
    loop {
        words = match *words {
            ["--interface", address, ref rest @ ..] => {
                own.interfaces = vec![address.parse()?];
                rest
            }
            ["--security", authority, name, ref rest @ ..] => {
                own.security = secure(authority.as_ref(), name);
                rest
            }
            _ => break,
        };
    }
    let config = |domain: &str| -> Result<ParticipantConfig, Box<dyn std::error::Error>> {
        let domain = domain.parse()?;
        Ok(ParticipantConfig {
            domain,
            ..own.clone()
        })
    };
    match *words {
        ["idl"] => print!("{}", Octets::IDL),
        ["write", domain, topic, count, bytes] => {
            write(&config(domain)?, topic, count.parse()?, bytes.parse()?)?;
        }
        ["read", domain, topic, count] => read(&config(domain)?, topic, count.parse()?)?,
        _ => return Err("unknown arguments (hint: the usage is at the top of the example)".into()),
    }
    Ok(())
}

/// The files that `chappe dds keys` makes.
fn secure(authority: &Path, name: &str) -> SecurityConfig {
    let own = authority.join(name);
    SecurityConfig {
        identity_ca: authority.join("ca.pem"),
        certificate: own.join("certificate.pem"),
        private_key: own.join("private_key.pem"),
        permissions_ca: authority.join("ca.pem"),
        governance: authority.join("governance.p7s"),
        permissions: own.join("permissions.p7s"),
        ..SecurityConfig::default()
    }
}

fn take_part(
    config: &ParticipantConfig,
    topic: &str,
) -> Result<(Box<dyn Participant>, Topic), chappe_dds::DdsError> {
    let topic = Topic {
        name: topic.to_owned(),
        type_name: Octets::TYPE_NAME.into(),
    };
    Ok((open(config)?, topic))
}

/// Samples of a volatile topic may be lost while reader and writer are still discovering each other.
fn durable(qos: Qos) -> Qos {
    Qos {
        durability: Durability::TransientLocal,
        ..qos
    }
}

fn write(config: &ParticipantConfig, topic: &str, count: u64, bytes: usize) -> Outcome {
    let (mut participant, topic) = take_part(config, topic)?;
    let mut writer = participant.writer(&topic, &durable(Qos::reliable_writer(WINDOW)))?;
    let begun = Instant::now();
    while writer.matched() == 0 {
        if begun.elapsed() > PATIENCE {
            return Err("no reader was found".into());
        }
        participant.wait(Duration::from_millis(50))?;
        while participant.event().is_some() {}
    }
    for number in 1..=count {
        let filling = u8::try_from(number % 251)?;
        let octets = Octets {
            source: 1,
            number,
            time_ns: 0,
            octets: Bytes::from(vec![filling; bytes.saturating_sub(Octets::HEAD_BYTES)]),
        };
        write_within(&mut *participant, &mut *writer, &octets.payload(), PATIENCE)?;
    }
    while writer.unacknowledged() > 0 {
        if begun.elapsed() > PATIENCE {
            return Err("some samples are not acknowledged".into());
        }
        participant.wait(Duration::from_millis(50))?;
        while participant.event().is_some() {}
    }
    println!("written {count}");
    // A reader of another library may discard acknowledged samples that are not taken when their writer leaves.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn read(config: &ParticipantConfig, topic: &str, count: u64) -> Outcome {
    let (mut participant, topic) = take_part(config, topic)?;
    let mut reader = participant.reader(&topic, &durable(Qos::reliable_reader(WINDOW * 4)))?;
    println!("ready");
    let (mut taken, mut missing, mut repeated, mut bytes) = (Vec::new(), 0, 0, 0);
    let (begun, mut newest) = (Instant::now(), 0);
    while newest < count {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{newest} of {count} came").into());
        }
        participant.wait(Duration::from_millis(50))?;
        while participant.event().is_some() {}
        reader.take(usize::MAX, &mut taken)?;
        for sample in taken.drain(..) {
            let octets = Octets::read(&sample.payload)?;
            let filling = u8::try_from(octets.number % 251)?;
            if octets.octets.iter().any(|byte| *byte != filling) {
                return Err(format!("sample {} has different content", octets.number).into());
            }
            match octets.number {
                number if number <= newest => repeated += 1,
                number => {
                    missing += number - newest - 1;
                    newest = number;
                }
            }
            bytes += sample.payload.bytes.len();
        }
    }
    println!("read {count} missing {missing} repeated {repeated} bytes {bytes}");
    Ok(())
}
