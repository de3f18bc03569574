//! Goal: what programs print becomes elements exactly as promised, and what they do wrong is named.
//! Method: small shell scripts as programs; the tests play the host.

mod processor;

use std::future::poll_fn;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use chappe_stream::{Epoch, Position, Value};
use serde_json::{Map, json};

use super::{EXPORTER, WRAPPER};
use crate::{
    Batch, Command, Condition, Exporter, ExporterFile, ExporterOpening, Mark, Wrapper,
    WrapperError, WrapperFile, WrapperOpening,
};

const STREAM: &str = r#"
[[stream]]
name = "room.climate"
fields = [{ name = "celsius", type = "double", unit = "Cel" }]
"#;

/// A directory with the file of a program that runs a shell script.
fn directory(keys: &str, script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("script"), script).unwrap();
    let text = format!("kind = \"program\"\nprogram = [\"sh\", \"script\"]\n{keys}");
    std::fs::write(directory.path().join("climate.toml"), text).unwrap();
    directory
}

fn file(directory: &Path) -> WrapperFile {
    let path = directory.join("climate.toml");
    WrapperFile::parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap()
}

fn open(directory: &Path, mark: Option<&str>, condition: &Condition) -> Box<dyn Wrapper> {
    let file = file(directory);
    file.kind().unwrap();
    let mark = mark.map(|mark| Mark::new(mark.as_bytes().to_vec()).unwrap());
    let opening = WrapperOpening {
        file: &file,
        mark,
        condition: condition.clone(),
        notes: Default::default(),
        drops: Default::default(),
        inbox: tokio::sync::mpsc::channel(1).1,
    };
    (WRAPPER.open)(opening).unwrap()
}

fn wrapper(keys: &str, script: &str, mark: Option<&str>) -> (tempfile::TempDir, Box<dyn Wrapper>) {
    let directory = directory(&format!("{keys}\n{STREAM}"), script);
    let wrapper = open(directory.path(), mark, &Condition::default());
    (directory, wrapper)
}

fn numbers(batch: &Batch) -> Vec<f64> {
    let elements = batch.parts.iter().flat_map(|part| &part.elements);
    let number = |value: &Value| match value {
        Value::Double(number) => *number,
        other => panic!("{other:?}"),
    };
    elements.map(|element| number(&element.values[0])).collect()
}

/// All elements until the program ends, and the error by which it ends.
async fn all(wrapper: &mut dyn Wrapper) -> (Batch, WrapperError) {
    let mut all = Batch::default();
    loop {
        match wrapper.next().await {
            Ok(batch) => {
                for part in batch.parts {
                    for element in part.elements {
                        all.push(&part.stream, &part.definition, element);
                    }
                }
                all.undecodable.extend(batch.undecodable);
                all.mark = batch.mark;
            }
            Err(error) => return (all, error),
        }
    }
}

#[tokio::test]
async fn a_start_that_is_interrupted_goes_on() {
    let script = r#"
        echo start >> starts
        read -r first
        echo '{"element":{"celsius":1}}'
        cat > rest
    "#;
    let (directory, mut wrapper) = wrapper("", script, None);
    for _ in 0..3 {
        // Polls the future once and drops it.
        poll_fn(|context| {
            assert!(pin!(wrapper.next()).poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    let batch = wrapper.next().await.unwrap();
    assert_eq!(numbers(&batch), [1.0]);
    let starts = std::fs::read_to_string(directory.path().join("starts")).unwrap();
    assert_eq!(starts, "start\n");
}

#[tokio::test]
async fn lines_become_elements_and_the_end_has_a_reason() {
    let script = r#"
        echo '{"element":{"celsius":1}}'
        echo '{"element":{"celsius":2},"stream":"room.climate"}'
        echo no message
        echo '{"element":{"celsius":"warm"}}'
        echo '{"element":{"celsius":3},"stream":"other"}'
        echo '{"stream":{"name":"other","fields":[{"name":"n","type":"double"}]}}'
        echo '{"element":{"n":4},"stream":"other"}'
        echo 'cannot open the port' >&2
        exit 3
    "#;
    let (_directory, mut wrapper) = wrapper("", script, None);
    let (batch, error) = all(&mut *wrapper).await;
    assert_eq!(numbers(&batch), [1.0, 2.0, 4.0]);
    let text = error.to_string();
    assert!(
        text.contains("exit code 3") && text.contains("cannot open the port"),
        "{text}"
    );
    let reasons: Vec<&str> = batch.undecodable.iter().map(|one| &*one.reason).collect();
    for (reason, part) in reasons
        .iter()
        .zip(["no {", "celsius", "\"other\" is not a stream"])
    {
        assert!(reason.contains(part), "{reasons:?}");
    }
    assert_eq!(reasons.len(), 3, "{reasons:?}");
}

#[tokio::test]
async fn csv_and_json_lines_need_no_messages() {
    let csv = ("format = \"csv\"", "printf 'celsius\\n1\\n2.5\\n'");
    let json = (
        "format = \"json\"",
        "echo '{\"celsius\":1}'; echo '{\"celsius\":2.5}'",
    );
    for (format, script) in [csv, json] {
        let keys = format!("output = \"elements\"\n{format}");
        let (_directory, mut wrapper) = wrapper(&keys, script, None);
        let (batch, _) = all(&mut *wrapper).await;
        assert_eq!(
            (numbers(&batch), batch.undecodable.len()),
            (vec![1.0, 2.5], 0),
            "{format}"
        );
    }
}

#[tokio::test]
async fn a_line_that_the_end_of_a_program_cut_is_no_element() {
    let keys = "output = \"elements\"\nformat = \"key_value\"";
    for (end, cut) in [("kill -9 $$", 1), ("exit 3", 1), ("exit 0", 0)] {
        let script = format!("printf 'celsius=21\\ncelsius=2'; {end}");
        let (_directory, mut wrapper) = wrapper(keys, &script, None);
        let (batch, _) = all(&mut *wrapper).await;
        let letters: Vec<_> = batch.undecodable.iter().map(|one| &*one.message).collect();
        assert_eq!(numbers(&batch), [21.0, 2.0][..2 - cut], "{end}");
        assert_eq!(letters, vec![b"celsius=2"; cut], "{end}");
    }
}

#[tokio::test]
async fn elements_are_returned_with_the_mark_after_them() {
    let script = r#"
        read start
        case $start in *'"mark":5'*) ;; *) exit 9;; esac
        echo '{"element":{"celsius":6}}'
        echo '{"element":{"celsius":7},"mark":7}'
        echo '{"element":{"celsius":8}}'
        read stored
        case $stored in '{"stored":7}') echo '{"mark":8}';; esac
        echo '{"element":{"celsius":9}}'
    "#;
    let (_directory, mut wrapper) = wrapper("marks = true", script, Some("5"));
    let first = wrapper.next().await.unwrap();
    assert_eq!(
        (numbers(&first), first.mark.bytes()),
        (vec![6.0, 7.0], &b"7"[..])
    );
    wrapper.stored(&first.mark).await.unwrap();
    let (rest, _) = all(&mut *wrapper).await;
    // What has no mark is printed again after a restart.
    assert_eq!((numbers(&rest), rest.mark.bytes()), (vec![8.0], &b"8"[..]));
}

#[tokio::test]
async fn marks_must_be_announced_and_frequent() {
    let (_directory, mut unannounced) = wrapper("", "echo '{\"mark\":1}'", None);
    let error = unannounced.next().await.unwrap_err();
    assert_eq!(error.hint(), Some("marks = true"));
    let script = "while echo '{\"element\":{\"celsius\":6}}'; do :; done";
    let (_directory, mut endless) = wrapper("marks = true", script, None);
    let error = endless.next().await.unwrap_err();
    assert!(error.to_string().contains("without a mark"), "{error}");
}

#[tokio::test]
async fn a_command_is_answered() {
    let script = r#"
        read start
        while read line; do
            case $line in
            *'"name":"reset"'*) echo '{"answer":{"id":1,"result":{"done":true}}}';;
            *'"name":"fail"'*) echo '{"answer":{"id":2,"error":"jammed"}}';;
            *'"name":"mute"'*) ;;
            esac
        done
    "#;
    let commands =
        ["reset", "fail", "mute"].map(|name| format!("[[command]]\nname = \"{name}\"\n"));
    let directory = directory(
        &format!("answer_ms = 300\n{STREAM}\n{}", commands.concat()),
        script,
    );
    let mut wrapper = open(directory.path(), None, &Condition::default());
    let waited = tokio::time::timeout(Duration::from_millis(200), wrapper.next()).await;
    assert!(waited.is_err(), "it prints nothing");
    let call = |name: &str| Command {
        name: name.to_owned(),
        arguments: Map::new(),
    };
    assert_eq!(
        wrapper.command(&call("reset")).await.unwrap(),
        json!({"done": true})
    );
    for (name, part) in [
        ("fail", "jammed"),
        ("mute", "no answer"),
        ("other", "no command"),
    ] {
        let error = wrapper.command(&call(name)).await.unwrap_err();
        assert!(
            matches!(&error, WrapperError::Command(text) if text.contains(part)),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_program_that_reads_late_blocks_nothing() {
    // It prints more than a pipe holds before it reads anything.
    let script = r#"
        i=0
        while [ $i -lt 5000 ]; do echo '{"element":{"celsius":1}}'; i=$((i+1)); done
        sleep 0.3; echo '{"mark":1}'
        while read line; do last=$line; done
    "#;
    let (_directory, mut wrapper) = wrapper("marks = true", script, None);
    let mark = Mark::new(vec![b'7'; 1000]).unwrap();
    // Long enough for its start.
    let waited = tokio::time::timeout(Duration::from_millis(50), wrapper.next()).await;
    assert!(waited.is_err(), "it prints no mark within 300 ms");
    for _ in 0..1000 {
        wrapper.stored(&mark).await.unwrap();
    }
    assert_eq!(numbers(&wrapper.next().await.unwrap()).len(), 5_000);
}

#[tokio::test]
async fn the_whole_process_group_ends() {
    let script =
        "sleep 60 & echo $! > child; trap '' TERM; echo '{\"element\":{\"celsius\":1}}'; wait";
    let (directory, mut wrapper) = wrapper("", script, None);
    wrapper.next().await.unwrap();
    let child = std::fs::read_to_string(directory.path().join("child")).unwrap();
    let stat = format!("/proc/{}/stat", child.trim());
    let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(runs());
    drop(wrapper);
    let end = Instant::now() + Duration::from_secs(30);
    while runs() {
        assert!(Instant::now() < end, "it still runs");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn memory_is_limited() {
    // A shell that doubles a text until it has no memory for it.
    let script = "x=0123456789; while :; do x=$x$x; done";
    let (_directory, mut wrapper) = wrapper("memory_bytes = 67108864", script, None);
    let error = tokio::time::timeout(Duration::from_secs(60), wrapper.next()).await;
    assert!(error.expect("it ends").is_err());
}

#[tokio::test]
async fn a_file_that_others_can_write_runs_nothing() {
    for (name, mode) in [("climate.toml", 0o666), ("", 0o777)] {
        let (directory, mut wrapper) = wrapper("", "touch ran", None);
        let path = directory.path().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = wrapper.next().await.unwrap_err();
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.starts_with("chmod go-w")),
            "{error}"
        );
        assert!(!directory.path().join("ran").exists());
    }
}

#[test]
fn faults_of_the_file_have_lines() {
    let cases = [
        ("program = []", "program"),
        ("program = [\"a\"]\nmemory_bytes = 5", "memory_bytes"),
        ("program = [\"a\"]\nanswer_ms = 0", "answer_ms"),
        (
            "program = [\"a\"]\noutput = \"elements\"\nformat = \"csv\"\nmarks = true",
            "marks",
        ),
        ("program = [\"a\"]\nmark = true", "mark"),
    ];
    for (keys, key) in cases {
        let text = format!("kind = \"program\"\n{keys}\n{STREAM}");
        let file = WrapperFile::parse(Path::new("a.toml"), &text).unwrap();
        let error = file.kind().map(|kind| kind.name).unwrap_err();
        assert!(error.to_string().contains(key), "{keys}: {error}");
    }
}

fn exporter(script: &str) -> (tempfile::TempDir, Box<dyn Exporter>) {
    let directory = directory("streams = [\"a\"]\nanswer_ms = 2000", script);
    let path = directory.path().join("climate.toml");
    let file = ExporterFile::parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap();
    file.kind().unwrap();
    let exporter = (EXPORTER.open)(ExporterOpening {
        file: &file,
        notes: Default::default(),
        drops: Default::default(),
    })
    .unwrap();
    (directory, exporter)
}

fn batch(numbers: std::ops::RangeInclusive<u64>) -> Batch {
    let definition = file_definition();
    let mut batch = Batch::default();
    for number in numbers {
        let mut element = crate::tests::element(number as f64);
        element.position = position(number);
        batch.push(&"a".into(), &definition, element);
    }
    batch
}

fn position(sequence: u64) -> Position {
    Position {
        epoch: Epoch(7),
        sequence,
    }
}

fn file_definition() -> std::sync::Arc<crate::StreamDefinition> {
    let text = format!("kind = \"program\"\nprogram = [\"a\"]\n{STREAM}");
    let file = WrapperFile::parse(Path::new("a.toml"), &text).unwrap();
    let (_, definition) = file.fixed_streams().remove(0);
    std::sync::Arc::new(definition)
}

#[tokio::test]
async fn a_batch_is_written_once_the_program_has_stored_it() {
    let script = r#"
        read start
        echo '{"ready":{"reached":[{"stream":"a","position":"0000000000000007:2"}]}}'
        while read line; do
            case $line in
            *'"number":4'*) echo '{"refused":{"stream":"a","position":"0000000000000007:4","reason":"too hot"}}';;
            '{"mark":'*) echo "$line" | sed s/mark/stored/;;
            *) echo "$line" >> got;;
            esac
        done
    "#;
    let (directory, mut exporter) = exporter(script);
    let reached = exporter.resume().await.unwrap();
    assert_eq!(reached, [("a".to_owned(), position(2))]);
    let written = exporter.write(&batch(3..=5)).await.unwrap();
    let refused: Vec<_> = written
        .refused
        .iter()
        .map(|one| (one.position, &*one.reason))
        .collect();
    assert_eq!(refused, [(position(4), "too hot")]);
    let got = std::fs::read_to_string(directory.path().join("got")).unwrap();
    assert_eq!(got.lines().count(), 2);
    assert!(got.contains("\"values\":{\"celsius\":3.0}"), "{got}");
    assert_eq!(exporter.write(&batch(6..=6)).await.unwrap().refused, []);
}

#[tokio::test]
async fn a_program_that_does_not_store_is_ended() {
    let ready = "read start; echo '{\"ready\":{}}';";
    let cases = [
        ("read element; read mark; sleep 60", "no \"stored\""),
        (
            "read element; echo '{\"trouble\":\"disk full\"}'; sleep 60",
            "disk full",
        ),
        ("exit 4", "exit code 4"),
        (
            "read element; read mark; echo '{\"stored\":0}'; exit 5",
            "exit code 5",
        ),
        (
            "read element; read mark; echo '{\"refused\":{\"stream\":\"b\",\"position\":\"7:1\",\"reason\":\"\"}}'; echo '{\"stored\":1}'; sleep 60",
            "not in the batch",
        ),
    ];
    for (script, part) in cases {
        let (_directory, mut exporter) = exporter(&format!("{ready} {script}"));
        exporter.resume().await.unwrap();
        let error = exporter.write(&batch(1..=1)).await.unwrap_err();
        let text = error.to_string();
        // A program that ends before it reads is noticed by the write or by the read.
        assert!(
            text.contains(part) || (part == "exit code 4" && text.contains("read")),
            "{script}: {text}"
        );
        assert!(exporter.write(&batch(1..=1)).await.is_err());
    }
}

fn example(name: &str) -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/programs");
    root.join(name)
}

async fn checks(directory: &Path) -> Vec<(&'static str, bool, String)> {
    let checks = crate::check_program(&file(directory), None, Duration::from_millis(1_500)).await;
    let checks = checks.unwrap().into_iter();
    checks
        .map(|one| (one.rule, one.is_kept, one.detail))
        .collect()
}

#[tokio::test]
async fn the_examples_keep_the_rules() {
    let load = "output = \"elements\"\nformat = \"csv\"\n[[stream]]\nname = \"machine.load\"\n\
        fields = [{ name = \"one\", type = \"double\" }, { name = \"five\", type = \"double\" }]";
    let python = directory("marks = true\nsettings = { period_s = 0.05 }", "");
    let path = python.path().join("climate.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("\"sh\", \"script\"", "\"python3\", \"script\""),
    )
    .unwrap();
    std::fs::copy(example("counter.py"), python.path().join("script")).unwrap();
    let shell = directory(load, &std::fs::read_to_string(example("load.sh")).unwrap());
    let mut cases = vec![(shell, 3)];
    match std::process::Command::new("python3")
        .arg("--version")
        .output()
    {
        Ok(_) => cases.push((python, 5)),
        Err(_) => println!("skipped: python3 is not installed"),
    }
    for (directory, rules) in cases {
        let checks = checks(directory.path()).await;
        assert!(
            checks.len() == rules && checks.iter().all(|one| one.1),
            "{checks:?}"
        );
    }
}

#[tokio::test]
async fn a_check_names_each_broken_rule() {
    let script = "trap '' TERM PIPE; echo wrong; i=0; \
        while :; do echo \"{\\\"element\\\":{\\\"celsius\\\":$i},\\\"mark\\\":$i}\"; i=$((i+1)); sleep 0.2; done";
    let directory = directory(&format!("marks = true\n{STREAM}"), script);
    let checks = checks(directory.path()).await;
    let broken: Vec<&str> = checks
        .iter()
        .filter(|one| !one.1)
        .map(|one| one.0)
        .collect();
    let expected = [
        "each line is a message that fits",
        "it continues after its mark",
        "it ends after `stop` and the end of its input",
    ];
    assert_eq!(broken, expected, "{checks:?}");
}

#[tokio::test]
async fn the_exporter_in_c_stores_elements() {
    let directory = directory("streams = [\"a\"]", "");
    let program = directory.path().join("append");
    let built = std::process::Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(example("append.c"))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        println!("skipped: there is no C compiler");
        return;
    }
    let path = directory.path().join("climate.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("[\"sh\", \"script\"]", "[\"./append\"]");
    let file = ExporterFile::parse(&path, &text).unwrap();
    let mut exporter = (EXPORTER.open)(ExporterOpening {
        file: &file,
        notes: Default::default(),
        drops: Default::default(),
    })
    .unwrap();
    assert_eq!(exporter.resume().await.unwrap(), []);
    for numbers in [1..=3, 4..=4] {
        assert_eq!(exporter.write(&batch(numbers)).await.unwrap().refused, []);
    }
    let stored = std::fs::read_to_string(directory.path().join("elements.jsonl")).unwrap();
    assert_eq!(stored.lines().count(), 4, "{stored}");
}

#[tokio::test]
async fn the_end_of_the_program_counts_although_a_descendant_keeps_its_output() {
    let script = "echo '{\"celsius\":20}'\nsleep 60 &\nexit 3\n";
    let keys = "output = \"elements\"\nformat = { json = {} }";
    let (_directory, mut wrapper) = wrapper(keys, script, None);
    let batch = wrapper.next().await.unwrap();
    assert_eq!(batch.parts[0].elements[0].values, [Value::Double(20.0)]);
    let next = tokio::time::timeout(Duration::from_secs(30), wrapper.next());
    let error = next.await.expect("the program has ended").err().unwrap();
    assert!(
        error.to_string().contains("ended with exit code 3"),
        "{error}"
    );
}
