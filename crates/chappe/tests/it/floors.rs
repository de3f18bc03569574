//! Goal: every crate names its floor and uses only crates of lower floors.
//! Method: `cargo metadata` of this workspace; side crates are used by tests only.

use std::process::Command;

use serde_json::Value;

/// A crate of the workspace: name, floor (`None` for side crates), dependencies (name, is dev).
struct Package {
    name: String,
    floor: Option<u64>,
    dependencies: Vec<(String, bool)>,
}

const PROGRAM_FLOOR: u64 = 8;

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
            "--manifest-path",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .output()
        .expect("cargo runs, it built this test");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let list = metadata["packages"]
        .as_array()
        .expect("packages are listed");
    list.iter()
        .map(|package| Package {
            name: package["name"].as_str().unwrap_or_default().to_owned(),
            floor: match &package["metadata"]["floor"] {
                Value::String(side) if side == "side" => None,
                floor => Some(floor.as_u64().unwrap_or_else(|| {
                    panic!("{} has no floor in [package.metadata]", package["name"])
                })),
            },
            dependencies: package["dependencies"]
                .as_array()
                .expect("dependencies are listed")
                .iter()
                .map(|d| {
                    (
                        d["name"].as_str().unwrap_or_default().to_owned(),
                        d["kind"] == "dev",
                    )
                })
                .collect(),
        })
        .collect()
}

/// Dependencies that break the order, in words.
fn upward(packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        for (name, is_dev) in &package.dependencies {
            let Some(used) = packages.iter().find(|other| other.name == *name) else {
                continue;
            };
            let allowed = match (package.floor, used.floor) {
                (Some(floor), Some(below)) => below < floor,
                (Some(_), None) => *is_dev,
                (None, Some(floor)) => floor < PROGRAM_FLOOR,
                (None, None) => true,
            };
            if !allowed {
                wrong.push(format!("{} uses {name}", package.name));
            }
        }
    }
    wrong
}

#[test]
fn crates_use_only_lower_floors() {
    let packages = packages();
    assert!(packages.len() > 10, "the workspace is listed");
    assert_eq!(upward(&packages), Vec::<String>::new());
}

#[test]
fn an_upward_dependency_is_reported() {
    let package = |name: &str, floor, uses: &str| Package {
        name: name.into(),
        floor,
        dependencies: vec![(uses.into(), false)],
    };
    let planted = [
        package("low", Some(1), "high"),
        package("high", Some(2), "side"),
        package("program", Some(PROGRAM_FLOOR), "side"),
        package("side", None, "low"),
    ];
    assert_eq!(
        upward(&planted),
        ["low uses high", "high uses side", "program uses side"]
    );
}

#[test]
fn low_floors_ban_clock_environment_and_sockets() {
    for package in packages() {
        let low = package.floor.is_some_and(|floor| floor <= 3);
        let folder = package.name.strip_prefix("chappe-").unwrap_or("chappe");
        let path = format!("{}/../{folder}/clippy.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let bans = [
            "Instant::now",
            "SystemTime::now",
            "env::var",
            "UdpSocket",
            "TcpStream",
        ];
        let banned = bans.iter().all(|ban| text.contains(ban));
        assert_eq!(banned, low, "{path}");
    }
}
