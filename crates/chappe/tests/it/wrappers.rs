//! Goal: a wrapper stores each line of a file exactly once, a processor makes each output exactly once, and an
//! exporter writes each element exactly once, although the node is killed again and again while the file grows
//! and is rotated.
//! Method: the program itself, killed by SIGKILL while lines are written; then a node in this process reads
//! the streams, and the exported file is counted.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::Value;

/// For an unoptimized program on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

const WRAPPER: &str = r#"
kind = "file"
path = "../counts.csv"
format = "csv"
poll_ms = 20
start = "oldest"
level = "process"

[[stream]]
name = "line.count"
fields = [{ name = "count", type = "integer", unit = "1" }]
"#;

const PROCESSOR: &str = r#"
kind = "program"
program = ["sh", "sum.sh"]
inputs = ["line.*"]
level = "process"

[[stream]]
name = "sum"
fields = [{ name = "sum", type = "integer" }]
"#;

/// The sum of all counts so far, which is its state.
const SUM: &str = include_str!("sum.sh");

const EXPORTER: &str = "kind = \"file\"\npath = \"../out.jsonl\"\nstreams = [\"line.*\"]\n";

fn serve(folder: &Path) -> Child {
    let set = [
        format!("data_directory={}", folder.join("data").display()),
        format!("sensors_directory={}", folder.join("s").display()),
        format!("wrappers_directory={}", folder.join("w").display()),
        format!("exporters_directory={}", folder.join("e").display()),
        "http.listen=127.0.0.1:0".to_owned(),
        "discovery.enabled=false".to_owned(),
        "log.min_free_bytes=0".to_owned(),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
    command.arg("serve");
    for setting in set {
        command.args(["--set", &setting]);
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let stdout = child.stdout.as_mut().expect("its output");
    let mut ready = String::new();
    BufReader::new(stdout)
        .read_line(&mut ready)
        .expect("a line");
    child
}

/// Writes the numbers from `next` on, and rotates the file now and then.
struct Writer<'a> {
    folder: &'a Path,
    file: File,
    next: u64,
    rotations: u64,
}

impl<'a> Writer<'a> {
    fn new(folder: &'a Path) -> Self {
        Self {
            folder,
            file: Self::begin(folder),
            next: 1,
            rotations: 0,
        }
    }

    fn begin(folder: &Path) -> File {
        let path = folder.join("counts.csv");
        let mut options = OpenOptions::new();
        let mut file = options
            .create(true)
            .append(true)
            .open(path)
            .expect("the file");
        file.write_all(b"count\n").expect("a header");
        file
    }

    /// Half a line, then its other half and more lines.
    fn write(&mut self, lines: u64) {
        for _ in 0..lines {
            let line = format!("{}\n", self.next);
            let (half, rest) = line.split_at(line.len() / 2);
            self.file.write_all(half.as_bytes()).expect("a half");
            self.file.write_all(rest.as_bytes()).expect("a half");
            self.next += 1;
        }
    }

    fn rotate(&mut self) {
        self.rotations += 1;
        let rotated = format!("counts.csv-{:04}", self.rotations);
        let path = self.folder.join("counts.csv");
        std::fs::rename(path, self.folder.join(rotated)).expect("it is renamed");
        self.file = Self::begin(self.folder);
    }
}

fn integers(node: &Node, stream: &str) -> Vec<i64> {
    let Some(log) = node.stream(stream) else {
        return Vec::new();
    };
    let elements = log.read(0, 1_000_000).expect("its elements");
    let value = |element: &chappe_stream::StreamElement| match element.values[0] {
        Value::Integer(number) => number,
        ref other => panic!("{other:?}"),
    };
    elements.iter().map(value).collect()
}

/// The numbers of the complete lines of the exported file.
fn exported(folder: &Path) -> Vec<i64> {
    let text = std::fs::read_to_string(folder.join("out.jsonl")).unwrap_or_default();
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let value = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        line["values"]["count"].as_i64().expect("a number")
    };
    lines.map(value).collect()
}

#[test]
fn each_line_is_stored_and_exported_exactly_once_across_kills() {
    let temporary = tempfile::tempdir().expect("a scratch folder");
    let folder = temporary.path();
    for (directory, file, text) in [
        ("w", "counts.toml", WRAPPER),
        ("w", "sum.toml", PROCESSOR),
        ("w", "sum.sh", SUM),
        ("e", "out.toml", EXPORTER),
    ] {
        std::fs::create_dir_all(folder.join(directory)).expect("a folder");
        std::fs::write(folder.join(directory).join(file), text).expect("a file");
    }
    let mut writer = Writer::new(folder);
    for kill in 0..8_u64 {
        let mut node = serve(folder);
        // The kill falls at another point of reading, storing and exporting each time.
        let until = Instant::now() + Duration::from_millis(300 + 170 * kill);
        while Instant::now() < until {
            writer.write(40);
            std::thread::sleep(Duration::from_millis(7));
        }
        if kill % 2 == 1 {
            writer.rotate();
            writer.write(3);
        }
        node.kill().expect("it runs");
        node.wait().expect("it ends");
    }
    writer.write(5);
    let expected: Vec<i64> = (1..i64::try_from(writer.next).unwrap()).collect();
    let sums: Vec<i64> = expected
        .iter()
        .map(|count| count * (count + 1) / 2)
        .collect();
    let config = Config {
        name: "test".into(),
        data_directory: folder.join("data"),
        sensors_directory: folder.join("s"),
        wrappers_directory: folder.join("w"),
        exporters_directory: folder.join("e"),
        ..Config::default()
    };
    let mut config = config;
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.discovery.enabled = false;
    config.log.min_free_bytes = 0;
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config).await.unwrap();
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE
            && (integers(&node, "line.count").len() < expected.len()
                || integers(&node, "sum").len() < sums.len()
                || exported(folder).len() < expected.len())
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(integers(&node, "line.count"), expected, "stored");
        assert_eq!(integers(&node, "sum"), sums, "processed");
        assert_eq!(exported(folder), expected, "exported");
        node.shutdown().await.unwrap();
    });
}
