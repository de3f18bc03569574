//! Goal: the laboratory rejects impossible requests before it starts, with the right exit code.
//! Method: the built program is run as a user would run it, without a network.

use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chappe-lab"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn impossible_requests_are_refused_before_the_work() {
    let stdout_and_error = |arguments: &[&str], code: i32, words: &str| {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let text = out(&output) + &err(&output);
        assert!(text.contains(words), "{arguments:?}: {text}");
    };
    for scenario in ["notify", "lookup", "query"] {
        let arguments = ["bench", scenario, "--only", "nonsense"];
        stdout_and_error(&arguments, 2, "has no part \"nonsense\"");
    }
    for part in ["emulated-dead", "partition", "simulation", "jetstream"] {
        stdout_and_error(&["bench", "--help"], 0, part);
    }
    let lookup = ["sim", "lookup", "--nodes", "2"];
    for (flag, value) in [
        ("--least", "nan"),
        ("--region-nodes", "0"),
        ("--runs", "0"),
        ("--sybils", "91"),
        ("--loss", "-1"),
        // Nobody is honest.
        ("--sybils", "90"),
    ] {
        let given = format!("{flag}={value}");
        let arguments = [&lookup[..], &[&given]].concat();
        stdout_and_error(&arguments, 2, flag);
    }
    let out = [&lookup[..], &["--out", "/proc/nope"]].concat();
    stdout_and_error(&out, 2, "cannot create /proc/nope");
    stdout_and_error(
        &["bench", "registry", "--out", "/proc/nope"],
        2,
        "/proc/nope",
    );
}

#[test]
fn a_network_in_which_nothing_is_judged_is_no_success() {
    let few = [
        "--nodes",
        "10",
        "--session",
        "1s",
        "--settle",
        "5s",
        "--searches",
        "20",
    ];
    let output = lab(&[&["sim", "lookup"][..], &few].concat());
    assert_eq!(output.status.code(), Some(1));
    let text = out(&output);
    assert!(text.contains("not judged"), "{text}");
    assert!(text.contains("searches for one device"), "{text}");
    assert!(!text.contains("100.00 %"), "{text}");
}

#[test]
fn a_missing_program_under_test_is_refused_with_a_hint() {
    for scenario in [&["readiness"][..], &["napa", "--only", "zeromq"]] {
        let program = ["--quick", "--program", "/proc/nope"];
        let output = lab(&[&["bench"], scenario, &program].concat());
        let text = err(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("program /proc/nope does not exist"), "{text}");
        assert!(
            text.contains("hint: ") && text.contains("--program"),
            "{text}"
        );
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = lab(&["completions", shell]);
        assert!(out(&output).contains("readiness"), "{shell}");
    }
}
