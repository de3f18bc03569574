//! Goal: what becomes of a batch is returned whole with its state, and whatever breaks the rules of a processor is
//! named.
//! Method: shell scripts as programs; the tests play the host.

use super::*;

/// A processor that runs a script, with its state.
fn processor(
    keys: &str,
    script: &str,
    state: Option<&str>,
) -> (tempfile::TempDir, Box<dyn Wrapper>) {
    let keys = format!("inputs = [\"a\"]\nanswer_ms = 2000\n{keys}");
    wrapper(&keys, script, state)
}

#[tokio::test]
async fn what_becomes_of_a_batch_is_returned_with_its_state() {
    let script = r#"
        read start
        case $start in *'"role":"processor"'*'"state":{"n":3}'*) ;; *) exit 9;; esac
        while read line; do
            case $line in
            *'"number":4'*) echo '{"refused":{"stream":"a","position":"0000000000000007:4","reason":"too hot"}}';;
            '{"element"'*) echo '{"element":{"celsius":1}}';;
            '{"mark":1}') echo '{"stored":1,"state":{"n":6}}';;
            '{"mark":2}') echo '{"stored":2}';;
            esac
        done
    "#;
    let (_directory, mut wrapper) = processor("", script, Some("{\"n\":3}"));
    assert!(wrapper.inputs().is_some_and(|inputs| inputs.selects("a")));
    wrapper.input(&batch(3..=5)).await.unwrap();
    let first = wrapper.next().await.unwrap();
    assert_eq!(
        (numbers(&first), first.mark.bytes()),
        (vec![1.0, 1.0], &b"{\"n\":6}"[..])
    );
    let refused = &first.undecodable[0];
    assert_eq!(refused.reason, "refused 0000000000000007:4 of a: too hot");
    wrapper.stored(&first.mark).await.unwrap();
    wrapper.input(&batch(6..=6)).await.unwrap();
    let second = wrapper.next().await.unwrap();
    assert_eq!((numbers(&second).len(), second.mark.bytes()), (1, &b""[..]));
}

#[tokio::test]
async fn a_processor_that_breaks_the_rules_is_ended() {
    let read = "read start; read element; read mark;";
    let endless = "while echo '{\"element\":{\"celsius\":6}}'; do :; done";
    let cases = [
        ("sleep 60", "no \"stored\" within"),
        (
            "echo '{\"stored\":2}'; sleep 60",
            "answered `stored` 2, not 1",
        ),
        (
            "echo '{\"stored\":1}'; echo '{\"stored\":1}'; sleep 60",
            "answered `stored` 1, not nothing",
        ),
        ("echo '{\"mark\":1}'; sleep 60", "prints no marks"),
        (
            "echo '{\"refused\":{\"stream\":\"a\",\"position\":\"7:9\",\"reason\":\"\"}}'; sleep 60",
            "which it was not passed",
        ),
        (
            "echo '{\"stream\":{\"name\":\"a\",\"fields\":[{\"name\":\"n\",\"type\":\"double\"}]}}'; sleep 60",
            "\"a\", which the program itself writes",
        ),
        (endless, "before \"stored\""),
        ("exit 4", "exit code 4"),
    ];
    for (script, part) in cases {
        let (_directory, mut wrapper) = processor("", &format!("{read} {script}"), None);
        wrapper.input(&batch(1..=1)).await.unwrap();
        let (batch, error) = all(&mut *wrapper).await;
        assert!(error.to_string().contains(part), "{script}: {error}");
        assert_eq!(batch.elements(), 0, "{script}");
    }
}

#[tokio::test]
async fn a_processor_that_prints_is_given_time() {
    // It answers after longer than `answer_ms`, and prints in between.
    let script = "read start; read element; read mark
        for i in 1 2 3 4 5; do sleep 0.2; echo '{\"element\":{\"celsius\":1}}'; done
        echo '{\"stored\":1}'; sleep 60";
    let keys = "inputs = [\"a\"]\nanswer_ms = 600";
    let (_directory, mut wrapper) = wrapper(keys, script, None);
    wrapper.input(&batch(1..=1)).await.unwrap();
    assert_eq!(numbers(&wrapper.next().await.unwrap()).len(), 5);
}

#[test]
fn faults_of_a_processors_file_have_lines() {
    let cases = [
        ("inputs = [\"A\"]", "inputs"),
        ("inputs = [\"room.*\"]", "inputs"),
        ("inputs = [\"a\"]\nmarks = true", "marks"),
        ("inputs = [\"a\"]\nstart = \"last\"", "start"),
        (
            "inputs = [\"a\"]\noutput = \"elements\"\nformat = \"csv\"",
            "output",
        ),
    ];
    for (keys, key) in cases {
        let text = format!("kind = \"program\"\nprogram = [\"a\"]\n{keys}\n{STREAM}");
        let file = WrapperFile::parse(Path::new("a.toml"), &text).unwrap();
        let error = file.kind().map(|kind| kind.name).unwrap_err();
        assert!(
            error.line >= 3 && error.to_string().contains(key),
            "{keys}: {error}"
        );
    }
}

/// Elements of the input, as the node shows them.
fn elements(count: u32) -> String {
    let line = |number| format!("{{\"stream\":\"a\",\"values\":{{\"celsius\":{number}}}}}\n");
    (1..=count).map(line).collect()
}

async fn check(directory: &Path) -> Vec<(&'static str, bool, String)> {
    let (file, elements) = (file(directory), elements(9));
    let time = Duration::from_secs(60);
    let checks = crate::check_program(&file, Some(&elements), time).await;
    let checks = checks.unwrap().into_iter();
    checks
        .map(|one| (one.rule, one.is_kept, one.detail))
        .collect()
}

#[tokio::test]
async fn the_example_keeps_the_rules() {
    if std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: python3 is not installed");
        return;
    }
    let keys =
        format!("inputs = [\"a\"]\nsettings = {{ field = \"celsius\", window = 3 }}\n{STREAM}");
    let keys = keys.replace("\nfields", "\nkey = \"{input}\"\nfields");
    let directory = directory(&keys, "");
    let path = directory.path().join("climate.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"sh\"", "\"python3\"")).unwrap();
    std::fs::copy(example("mean.py"), directory.path().join("script")).unwrap();
    let checks = check(directory.path()).await;
    assert!(
        checks.len() == 5 && checks.iter().all(|one| one.1),
        "{checks:?}"
    );
}

#[tokio::test]
async fn a_check_names_a_state_that_is_missing() {
    // It counts, and starts again at 0.
    let script = r#"
        read start; n=0
        while read line; do
            case $line in
            '{"element"'*) n=$((n+1)); echo "{\"element\":{\"celsius\":$n}}";;
            '{"mark"'*) echo "$line" | sed s/mark/stored/;;
            *) exit;;
            esac
        done
    "#;
    let directory = directory(&format!("inputs = [\"a\"]\n{STREAM}"), script);
    let checks = check(directory.path()).await;
    let broken: Vec<_> = checks.iter().filter(|one| !one.1).collect();
    assert_eq!(broken.len(), 1, "{checks:?}");
    assert_eq!(broken[0].0, "a restart does not change what it prints");
    assert_eq!(broken[0].2, "5 of 5 elements differ; it prints no state");
    let without = crate::check_program(&file(directory.path()), None, Duration::from_secs(1)).await;
    assert!(
        without
            .unwrap_err()
            .hint()
            .is_some_and(|hint| hint.contains("--elements"))
    );
}
