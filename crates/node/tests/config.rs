//! Goal: a wrong configuration is refused with the file, the line, the key and a hint, and the
//! schema that editors use accepts exactly what the loader accepts.
//! Method: tables of files; the sample with every key uncommented; each layer over the one before.

use std::path::PathBuf;

use chappe_node::config::{self, Config, Flag, Layers, Origin, keys, load, sample};

fn file(text: &str) -> Layers {
    Layers {
        file: Some((PathBuf::from("/etc/chappe/node.toml"), text.to_owned())),
        ..Layers::default()
    }
}

fn uncommented() -> String {
    let lines = sample();
    let lines: Vec<&str> = lines
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => rest,
            _ => line,
        })
        .collect();
    lines.join("\n")
}

#[test]
fn the_sample_changes_nothing_and_names_every_key() {
    println!("{}", sample());
    let loaded = load(&file(&sample())).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.settings.iter().all(|s| s.origin == Origin::Default));

    let loaded = load(&file(&uncommented())).unwrap();
    let expected = Config {
        data_directory: "/etc/chappe/chappe-data".into(),
        sensors_directory: "/etc/chappe/sensors".into(),
        ..Config::default()
    };
    assert_eq!(loaded.config, expected);
    let from_file = |s: &config::Setting| matches!(s.origin, Origin::File(..));
    assert!(
        loaded.settings.iter().all(from_file),
        "{:?}",
        loaded.settings
    );
    assert!(keys().iter().all(|key| !key.meaning.is_empty()));
}

#[test]
fn wrong_files_are_refused_by_line_key_and_hint() {
    // (file, line, key, part of the text, part of the hint)
    let table = [
        ("nmae = \"a\"", 1, "nmae", "unknown key", "`name`"),
        (
            "\n[http]\nlistn = \"127.0.0.1:1\"",
            3,
            "http.listn",
            "unknown key",
            "`listen`",
        ),
        (
            "[http]\nlisten = \"localhost\"",
            2,
            "http.listen",
            "no address",
            "127.0.0.1:8470",
        ),
        ("[http]\nlisten = 8470", 2, "http.listen", "a text", ""),
        (
            "[http]\nmax_connections = 0",
            2,
            "http.max_connections",
            "below",
            "",
        ),
        (
            "[http]\nmax_connections = \"many\"",
            2,
            "http.max_connections",
            "whole number",
            "",
        ),
        ("http = 3", 1, "http", "a table", ""),
        (
            "[log]\nlevel = \"powr\"",
            2,
            "log.level",
            "none of",
            "\"power\"",
        ),
        (
            "[discovery]\ncontact = [\"10.0.0.0/8\",\n\"10.0.0.0/33\"]",
            3,
            "discovery.contact.1",
            "prefix",
            "10.1.0.0/16",
        ),
        (
            "[discovery]\ninterfaces = \"eth0\"",
            2,
            "discovery.interfaces",
            "a list",
            "",
        ),
        (
            "[access]\ninsecure = \"yes\"",
            2,
            "access.insecure",
            "true or false",
            "",
        ),
        ("schema_version = 2", 1, "schema_version", "above", ""),
        (
            "name = 'a'\nname = 'b'",
            2,
            "",
            "duplicate",
            "config sample",
        ),
        ("name = ", 1, "", "", "config sample"),
        (
            "[storage]\nx = 1",
            1,
            "storage",
            "unknown key",
            "known here",
        ),
        (
            "[http]\nlisten = \"0.0.0.0:8470\"",
            2,
            "http.listen",
            "other machines",
            "read = \"token\"",
        ),
    ];
    for (text, line, key, what, hint) in table {
        let error = load(&file(text)).expect_err(text);
        let problem = &error.problems[0];
        assert_eq!(problem.line, Some(line), "{text}: {error}");
        assert_eq!(problem.key.as_deref().unwrap_or(""), key, "{text}");
        assert!(problem.what.contains(what), "{text}: {}", problem.what);
        let said = problem.hint.as_deref().unwrap_or("");
        assert!(said.contains(hint), "{text}: {said}");
        assert!(error.to_string().starts_with("/etc/chappe/node.toml"));
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let error = load(&file("a = 1\n[http]\nlisten = 1\nmax_body_bytes = 1")).unwrap_err();
    assert_eq!(error.problems.len(), 3, "{error}");
}

#[test]
fn each_layer_stands_over_the_one_before() {
    let mut layers = file("name = \"file\"\n[log]\nlevel = \"process\"\n[http]\nhosts = [\"a\"]");
    layers.environment = vec![
        ("CHAPPE_NAME".into(), "environment".into()),
        ("CHAPPE_HTTP_HOSTS".into(), "b, c".into()),
        ("CHAPPE_CONTEXT".into(), "ward".into()),
        ("PATH".into(), "/bin".into()),
    ];
    layers.flags = vec![Flag {
        name: "--name".into(),
        key: "name".into(),
        value: "flag".into(),
    }];
    let loaded = load(&layers).unwrap();
    assert_eq!(loaded.config.name, "flag");
    assert_eq!(loaded.config.http.hosts, ["b", "c"]);
    let origin = |key: &str| {
        let setting = loaded.settings.iter().find(|s| s.key == key).unwrap();
        setting.origin.to_string()
    };
    assert_eq!(origin("name"), "--name");
    assert_eq!(origin("http.hosts"), "CHAPPE_HTTP_HOSTS");
    assert_eq!(origin("log.level"), "/etc/chappe/node.toml:3");
    assert_eq!(origin("http.listen"), "default");
}

#[test]
fn wrong_variables_and_flags_are_refused_by_name() {
    let table = [
        (
            "CHAPPE_HTTP_LISTN",
            "127.0.0.1:1",
            "unknown variable",
            "CHAPPE_HTTP_LISTEN",
        ),
        ("CHAPPE_HTTP_LISTEN", "here", "no address", ""),
        ("CHAPPE_HTTP_MAX_CONNECTIONS", "-1", "whole number", ""),
        ("CHAPPE_ACCESS_INSECURE", "perhaps", "true or false", ""),
        ("CHAPPE_HTTP_LISTEN", "0.0.0.0:0", "other machines", "token"),
    ];
    for (name, value, what, hint) in table {
        let layers = Layers {
            environment: vec![(name.into(), value.into())],
            ..Layers::default()
        };
        let error = load(&layers).expect_err(name);
        assert_eq!(error.problems[0].place, name);
        assert!(error.problems[0].what.contains(what), "{error}");
        assert!(error.to_string().contains(hint), "{error}");
    }
    let flag = Flag {
        name: "--set".into(),
        key: "log.levle".into(),
        value: "power".into(),
    };
    let error = load(&Layers {
        flags: vec![flag],
        ..Layers::default()
    });
    assert!(error.unwrap_err().to_string().contains("`log.level`"));
}
