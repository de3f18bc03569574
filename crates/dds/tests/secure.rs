//! Goal: participants with certificates of one authority and with permissions exchange samples. One without a
//! certificate, of another authority, revoked, or with expired or other permissions does not, and the reason is visible.
//! Method: files of `keys`, and participants of one process on loopback, each with sockets of its own. A pair that may
//! talk shows when another had the time to.

#![cfg(all(cyclone, feature = "security"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use chappe_dds::keys::{Admission, KeysError, admit};
use chappe_dds::{
    Bytes, DdsError, Durability, Event, Octets, Participant, ParticipantConfig, Qos, Reader,
    Sample, SecurityConfig, Topic, Writer, open, write_within,
};

/// The time limit of every step; reason: a busy machine, and handshakes of several seconds.
const PATIENCE: Duration = Duration::from_secs(240);
const HOUR: Duration = Duration::from_secs(3_600);

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("chappe-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn admit(&self, name: &str, topics: &[&str], until: SystemTime) -> SecurityConfig {
        let admission = Admission {
            name: name.to_owned(),
            topics: topics.iter().map(|it| (*it).to_owned()).collect(),
            until,
        };
        admit(&self.0, &admission).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config(offset: u32, security: &SecurityConfig) -> ParticipantConfig {
    // Below 101 its ports are below the ephemeral range.
    let domain = 1 + (std::process::id().wrapping_mul(7) + offset * 53) % 100;
    ParticipantConfig {
        domain: u16::try_from(domain).unwrap(),
        security: security.clone(),
        ..ParticipantConfig::default()
    }
}

fn topic() -> Topic {
    Topic {
        name: format!("ward/secure/{}", std::process::id()),
        type_name: Octets::TYPE_NAME.into(),
    }
}

fn kept(qos: Qos) -> Qos {
    Qos {
        durability: Durability::TransientLocal,
        ..qos
    }
}

/// A participant with a writer or a reader, and what it has reported.
struct Side {
    participant: Box<dyn Participant>,
    writer: Option<Box<dyn Writer>>,
    reader: Option<Box<dyn Reader>>,
    warnings: Vec<String>,
    broken: Option<DdsError>,
}

impl Side {
    fn open(config: &ParticipantConfig, writes: bool) -> Result<Self, DdsError> {
        let mut participant = open(config)?;
        let (writing, reading) = (Qos::reliable_writer(16), Qos::reliable_reader(16));
        let (writer, reader) = match writes {
            true => (Some(participant.writer(&topic(), &kept(writing))?), None),
            false => (None, Some(participant.reader(&topic(), &kept(reading))?)),
        };
        Ok(Self {
            participant,
            writer,
            reader,
            warnings: Vec::new(),
            broken: None,
        })
    }

    fn turn(&mut self) {
        let waited = self.participant.wait(Duration::from_millis(5));
        self.broken = self.broken.take().or(waited.err());
        while let Some(event) = self.participant.event() {
            if let Event::Warnings { newest, .. } = event {
                self.warnings.extend(newest);
            }
        }
    }

    fn matched(&self) -> usize {
        let writer = self.writer.as_ref().map_or(0, |it| it.matched());
        self.reader.as_ref().map_or(writer, |it| it.matched())
    }

    fn has_warned(&self, words: &str) -> bool {
        self.warnings.iter().any(|it| it.contains(words))
    }
}

fn until(sides: &mut [&mut Side], mut done: impl FnMut(&mut [&mut Side]) -> bool) {
    let begun = Instant::now();
    while !done(sides) {
        let said: Vec<_> = sides
            .iter()
            .map(|it| (it.matched(), &it.warnings))
            .collect();
        assert!(begun.elapsed() < PATIENCE, "{said:?}");
        sides.iter_mut().for_each(|it| it.turn());
    }
}

#[test]
fn participants_of_one_authority_exchange_samples() {
    let authority = Directory::new("secure-pair");
    let later = SystemTime::now() + HOUR;
    let one = config(0, &authority.admit("ward-1", &["ward/*"], later));
    let two = config(0, &authority.admit("ward-2", &["*"], later));
    let mut here = Side::open(&one, true).unwrap();
    let mut there = Side::open(&two, false).unwrap();
    until(&mut [&mut here, &mut there], |sides| {
        sides.iter().all(|it| it.matched() == 1)
    });
    let (mut got, count): (Vec<Sample>, u64) = (Vec::new(), 100);
    for number in 0..count {
        let octets = Octets {
            number,
            octets: Bytes::from(vec![number as u8; (number as usize % 4) * 40_000]),
            ..Octets::default()
        };
        let writer = here.writer.as_deref_mut().unwrap();
        let payload = octets.payload();
        write_within(&mut *here.participant, writer, &payload, PATIENCE).unwrap();
        there.reader.as_mut().unwrap().take(64, &mut got).unwrap();
    }
    until(&mut [&mut here, &mut there], |sides| {
        sides[1]
            .reader
            .as_mut()
            .unwrap()
            .take(64, &mut got)
            .unwrap();
        let left = sides[0].writer.as_mut().unwrap().unacknowledged();
        got.len() as u64 == count && left == 0
    });
    let numbers = got
        .iter()
        .map(|it| Octets::read(&it.payload).unwrap().number);
    assert_eq!(numbers.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
    let numbers = got.iter().map(|it| u64::try_from(it.number).unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
    assert_eq!(there.reader.unwrap().lost(), 0);
}

#[test]
fn strangers_are_refused_and_reported() {
    let (authority, other) = (Directory::new("secure-own"), Directory::new("secure-other"));
    let later = SystemTime::now() + HOUR;
    let own = authority.admit("ward-1", &["*"], later);
    let good = authority.admit("ward-2", &["*"], later);
    let foreign = other.admit("ward-3", &["*"], later);
    let mut here = Side::open(&config(1, &own), true).unwrap();
    let mut good = Side::open(&config(1, &good), false).unwrap();
    let mut plain = Side::open(&config(1, &SecurityConfig::default()), false).unwrap();
    let mut foreign = Side::open(&config(1, &foreign), false).unwrap();
    until(
        &mut [&mut here, &mut good, &mut plain, &mut foreign],
        |sides| {
            let [here, good, ..] = sides else {
                unreachable!()
            };
            good.matched() == 1
                && here.matched() == 1
                && here.has_warned("announces no security")
                && here.has_warned("handshake")
        },
    );
    assert_eq!((plain.matched(), foreign.matched()), (0, 0));
}

#[test]
fn a_revoked_certificate_is_refused() {
    let authority = Directory::new("secure-revoked");
    let later = SystemTime::now() + HOUR;
    let mut own = authority.admit("ward-1", &["*"], later);
    let mut good = authority.admit("ward-2", &["*"], later);
    let revoked = authority.admit("ward-3", &["*"], later);
    let Some(list) = revocation_list(&authority.0, &revoked.certificate) else {
        return println!("skipped: a revoked certificate (the program openssl is missing)");
    };
    own.revocation_list.clone_from(&list);
    good.revocation_list = list;
    let mut here = Side::open(&config(2, &own), true).unwrap();
    let mut good = Side::open(&config(2, &good), false).unwrap();
    let mut revoked = Side::open(&config(2, &revoked), false).unwrap();
    until(&mut [&mut here, &mut good, &mut revoked], |sides| {
        sides[..2].iter().all(|it| it.matched() == 1) && sides[0].has_warned("revoked")
    });
    assert_eq!((here.matched(), revoked.matched()), (1, 0));
}

/// A list that revokes this certificate, made by the program `openssl`.
fn revocation_list(authority: &Path, certificate: &Path) -> Option<PathBuf> {
    let text = "[ca]\ndefault_ca=a\n[a]\ndatabase=index\ndefault_md=sha256\ndefault_crl_days=9\n";
    fs::write(authority.join("ca.conf"), text).unwrap();
    fs::write(authority.join("index"), "").unwrap();
    let run = |words: &[&str]| {
        let mut openssl = Command::new("openssl");
        openssl.args(["ca", "-config", "ca.conf", "-cert", "ca.pem"]);
        openssl.args(["-keyfile", "ca_key.pem"]).args(words);
        let output = openssl.current_dir(authority).output().ok()?;
        assert!(output.status.success(), "{output:?}");
        Some(())
    };
    run(&["-revoke", certificate.to_str().unwrap()])?;
    run(&["-gencrl", "-out", "revoked.pem"])?;
    Some(authority.join("revoked.pem"))
}

#[test]
fn permissions_are_enforced_and_end() {
    let authority = Directory::new("secure-permissions");
    let now = SystemTime::now();
    let security = authority.admit("ward-1", &["other/*"], now + HOUR);
    let error = Side::open(&config(3, &security), true).err().unwrap();
    let text = error.to_string().to_lowercase();
    assert!(text.contains("not allowed"), "{text}");

    // The certificate is valid, and the permissions are not.
    let mut security = authority.admit("ward-2", &["*"], now + HOUR);
    let expired = authority.admit("ward-3", &["*"], now - HOUR);
    security.permissions = expired.permissions.clone();
    let error = Side::open(&config(3, &security), true).err().unwrap();
    assert!(error.to_string().contains("permission"), "{error}");
    let error = Side::open(&config(3, &expired), true).err().unwrap();
    assert_eq!(error.setting(), "dds.security.certificate");
    assert!(error.to_string().contains("expired"), "{error}");

    // Both expire while they are in use: the participant fails, and its peer has no match.
    let brief = authority.admit(
        "ward-4",
        &["*"],
        SystemTime::now() + Duration::from_secs(20),
    );
    let lasting = authority.admit("ward-5", &["*"], now + HOUR);
    let mut here = Side::open(&config(3, &brief), true).unwrap();
    let mut there = Side::open(&config(3, &lasting), false).unwrap();
    until(&mut [&mut here, &mut there], |sides| {
        sides.iter().all(|it| it.matched() == 1)
    });
    until(&mut [&mut here, &mut there], |sides| {
        sides[0].broken.is_some() && sides[1].matched() == 0
    });
}

#[test]
fn each_faulty_file_is_reported_with_its_setting() {
    let (authority, other) = (
        Directory::new("secure-files"),
        Directory::new("secure-files-2"),
    );
    let later = SystemTime::now() + HOUR;
    let good = authority.admit("ward-1", &["*"], later);
    let second = authority.admit("ward-2", &["*"], later);
    let foreign = other.admit("ward-1", &["*"], later);
    good.check_files().unwrap();
    let changed = authority.0.join("changed.p7s");
    let text = fs::read_to_string(&good.permissions).unwrap();
    fs::write(&changed, text.replace("ward-1", "ward-2")).unwrap();
    let with = |change: &dyn Fn(&mut SecurityConfig)| {
        let mut config = good.clone();
        change(&mut config);
        config.check_files().unwrap_err()
    };
    type Change<'a> = &'a dyn Fn(&mut SecurityConfig);
    let cases: [(&str, Change<'_>); 8] = [
        ("identity_ca", &|it| it.identity_ca = "/nonexistent".into()),
        ("certificate", &|it| {
            it.identity_ca.clone_from(&foreign.identity_ca)
        }),
        ("certificate", &|it| {
            it.certificate.clone_from(&it.governance)
        }),
        ("private_key", &|it| {
            it.private_key.clone_from(&second.private_key)
        }),
        ("revocation_list", &|it| {
            it.revocation_list.clone_from(&it.certificate)
        }),
        ("permissions_ca", &|it| {
            it.permissions_ca.clone_from(&it.private_key)
        }),
        ("governance", &|it| {
            it.governance.clone_from(&foreign.governance)
        }),
        ("permissions", &|it| it.permissions.clone_from(&changed)),
    ];
    for (key, change) in cases {
        let error = with(change);
        assert_eq!(error.setting(), format!("dds.security.{key}"), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_participant_is_admitted_once_and_by_a_plain_name() {
    let authority = Directory::new("secure-names");
    let later = SystemTime::now() + HOUR;
    let good = authority.admit("ward-1", &["*"], later);
    let admission = |name: &str, topic: &str| {
        let topics = vec![topic.to_owned()];
        let (name, until) = (name.to_owned(), later);
        admit(
            &authority.0,
            &Admission {
                name,
                topics,
                until,
            },
        )
        .unwrap_err()
    };
    assert!(matches!(admission("ward-1", "*"), KeysError::Exists(_)));
    for name in ["", "../a", "a/b", "a,CN=b", ".a"] {
        assert!(matches!(admission(name, "*"), KeysError::Name(_)), "{name}");
    }
    for topic in ["", "a<b", "a&b"] {
        assert!(
            matches!(admission("b", topic), KeysError::Pattern(_)),
            "{topic}"
        );
    }
    #[cfg(unix)]
    {
        let rights = fs::metadata(&good.private_key).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&rights) & 0o077, 0);
    }
    assert!(good.certificate.exists());
}
