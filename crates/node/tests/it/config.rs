//! Goal: a wrong configuration is refused with the file, the line, the key and a hint, and the
//! schema that editors use accepts exactly what the loader accepts.
//! Method: tables of files; the sample with every key uncommented; each layer overriding the one before.

use std::path::{Path, PathBuf};

use chappe_node::config::{self, Config, Flag, Layers, MaxBytes, Origin, keys, load, sample};

fn file(text: &str) -> Layers {
    Layers {
        file: Some((PathBuf::from("/etc/chappe/node.toml"), text.to_owned())),
        ..Layers::default()
    }
}

#[test]
fn devices_with_tls_need_somebody_to_trust() {
    let fingerprint = "ab".repeat(32);
    for (text, key) in [
        (
            "fingerprints = [\"ab\"]".to_owned(),
            "devices.tls.fingerprints",
        ),
        (
            format!("fingerprints = [\"{}\"]", ":".repeat(64)),
            "devices.tls.fingerprints",
        ),
        ("usages = [\"1.2.3\"]".to_owned(), "devices.tls.usages"),
        (
            format!("fingerprints = [\"{fingerprint}\"]\nusages = [\"1..2\"]"),
            "devices.tls.usages",
        ),
        (
            "certificate = \"c.pem\"".to_owned(),
            "devices.tls.certificate",
        ),
    ] {
        let error = load(&file(&format!("[devices.tls]\n{text}"))).unwrap_err();
        let keys = error
            .problems
            .iter()
            .filter_map(|problem| problem.key.as_deref());
        assert!(
            keys.into_iter().any(|found| found.starts_with(key)),
            "{text}: {error:?}"
        );
    }
    let text = "authorities = \"ca.pem\"\nusages = [\"1.2.840.10004.20701.1.1\"]";
    let loaded = load(&file(&format!("[devices.tls]\n{text}"))).unwrap();
    let tls = loaded.config.devices.tls;
    assert_eq!(tls.authorities, Path::new("/etc/chappe/ca.pem"));
    assert!(tls.trusts());
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
    let mut expected = Config {
        data_directory: "/etc/chappe/chappe-data".into(),
        sensors_directory: "/etc/chappe/sensors".into(),
        wrappers_directory: "/etc/chappe/wrappers".into(),
        exporters_directory: "/etc/chappe/exporters".into(),
        rules_directory: "/etc/chappe/rules".into(),
        ..Config::default()
    };
    expected.registry.taxonomies_directory = "/etc/chappe/taxonomies".into();
    expected.registry.ontologies_directory = "/etc/chappe/ontologies".into();
    let loaded = load(&file(&sample())).unwrap();
    assert_eq!(loaded.config, expected);
    assert!(loaded.settings.iter().all(|s| s.origin == Origin::Default));

    let loaded = load(&file(&uncommented())).unwrap();
    assert_eq!(loaded.config, expected);
    let from_file = |s: &config::Setting| matches!(s.origin, Origin::File(..));
    assert!(
        loaded.settings.iter().all(from_file),
        "{:?}",
        loaded.settings
    );
    assert!(keys().iter().all(|key| !key.meaning.is_empty()));
    // The keys of a repeatable table are listed as well.
    for line in [
        "# kind: Its protocol: `zeromq`",
        "# limits.window_bytes: Maximum number of bytes",
    ] {
        assert!(sample().contains(line), "{line}");
    }
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
            "not an address",
            "127.0.0.1:8470",
        ),
        ("[http]\nlisten = 8470", 2, "http.listen", "a string", ""),
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
            "not one of",
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
        (
            "schema_version = 2",
            1,
            "schema_version",
            "version 2",
            "newer",
        ),
        (
            "name = 'a'\nname = 'b'",
            2,
            "",
            "duplicate",
            "config sample",
        ),
        ("name = ", 1, "", "", "config sample"),
        (
            "[links]\nname = 'a'",
            1,
            "links",
            "must be a list",
            "[[links]]",
        ),
        (
            "[storage]\nx = 1",
            1,
            "storage",
            "unknown key",
            "valid keys",
        ),
        (
            "[http]\nlisten = \"0.0.0.0:8470\"",
            2,
            "http.listen",
            "other machines",
            "read = \"token\"",
        ),
        (
            "[http]\nlisten = \"0.0.0.0:8470\"\n[access]\nread = \"token\"",
            2,
            "http.listen",
            "clear text",
            "self_signed = true",
        ),
        (
            "[http]\ntrusted_proxies = [\"proxy\"]",
            2,
            "http.trusted_proxies.0",
            "prefix",
            "10.1.0.0/16",
        ),
    ];
    for (text, line, key, message, hint) in table {
        let error = load(&file(text)).expect_err(text);
        let problem = &error.problems[0];
        assert_eq!(problem.line, Some(line), "{text}: {error}");
        assert_eq!(problem.key.as_deref().unwrap_or(""), key, "{text}");
        assert!(
            problem.message.contains(message),
            "{text}: {}",
            problem.message
        );
        let actual = problem.hint.as_deref().unwrap_or("");
        assert!(actual.contains(hint), "{text}: {actual}");
        assert!(error.to_string().starts_with("/etc/chappe/node.toml"));
    }
}

#[test]
fn a_listener_beyond_loopback_needs_tls_and_the_token_or_explicit_insecurity() {
    for more in [
        "[access]\nread = \"token\"\n[http.tls]\nself_signed = true",
        "[access]\ninsecure = true",
        "[access]\nread = \"token\"\ninsecure = true",
    ] {
        let text = format!("[http]\nlisten = \"0.0.0.0:8470\"\n{more}");
        load(&file(&text)).expect(more);
    }
}

#[test]
fn valid_but_unlikely_settings_cause_a_warning() {
    let table = [
        ("[http]\nhosts = [\"node.example\"]", "http.hosts"),
        (
            "[exchange]\ncontact = [\"127.0.0.0/8\"]",
            "exchange.contact",
        ),
        (
            "[http]\ntrusted_proxies = [\"0.0.0.0/0\"]",
            "http.trusted_proxies",
        ),
        (
            "[http]\ntrusted_proxies = [\"::/0\"]",
            "http.trusted_proxies",
        ),
        ("[devices]\nmax_streams = 10000", "devices.max_streams"),
    ];
    for (text, key) in table {
        let warnings = load(&file(text)).unwrap().warnings();
        assert_eq!(warnings.len(), 1, "{text}");
        assert_eq!(warnings[0].key.as_deref(), Some(key), "{text}");
        assert_eq!(
            (warnings[0].line, warnings[0].hint.is_some()),
            (Some(2), true)
        );
    }
    let named = "[http]\nhosts = [\"node.example\"]\ntrusted_proxies = [\"127.0.0.1\"]\n\
                 [exchange]\ncontact = [\"127.0.0.1\"]";
    for quiet in ["", named] {
        assert!(load(&file(quiet)).unwrap().warnings().is_empty(), "{quiet}");
    }
}

#[test]
fn all_faults_are_reported_at_once() {
    let error = load(&file("a = 1\n[http]\nlisten = 1\nmax_body_bytes = 1")).unwrap_err();
    assert_eq!(error.problems.len(), 3, "{error}");
}

#[test]
fn each_layer_overrides_the_one_before() {
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
fn the_size_limit_of_the_log_is_a_number_or_auto() {
    let default = load(&Layers::default()).unwrap().config.log.max_bytes;
    assert_eq!(default, MaxBytes::AUTO);
    for (value, limit) in [
        ("\"auto\"", MaxBytes::AUTO),
        ("0", MaxBytes::Bytes(0)),
        ("5000000", MaxBytes::Bytes(5_000_000)),
    ] {
        let text = format!("[log]\nmax_bytes = {value}");
        assert_eq!(load(&file(&text)).unwrap().config.log.max_bytes, limit);
        let name = "CHAPPE_LOG_MAX_BYTES".to_owned();
        let layers = Layers {
            environment: vec![(name, value.trim_matches('"').to_owned())],
            ..Layers::default()
        };
        assert_eq!(load(&layers).unwrap().config.log.max_bytes, limit);
    }
    let error = load(&file("[log]\nmax_bytes = \"half\"")).unwrap_err();
    assert!(error.to_string().contains("a whole number"), "{error}");
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
        ("CHAPPE_HTTP_LISTEN", "here", "not an address", ""),
        ("CHAPPE_HTTP_MAX_CONNECTIONS", "-1", "whole number", ""),
        ("CHAPPE_ACCESS_INSECURE", "perhaps", "true or false", ""),
        ("CHAPPE_HTTP_LISTEN", "0.0.0.0:0", "other machines", "token"),
    ];
    for (name, value, message, hint) in table {
        let layers = Layers {
            environment: vec![(name.into(), value.into())],
            ..Layers::default()
        };
        let error = load(&layers).expect_err(name);
        assert_eq!(error.problems[0].location, name);
        assert!(error.problems[0].message.contains(message), "{error}");
        assert!(error.to_string().contains(hint), "{error}");
    }
    let ours = ["NODE", "TOKEN", "FINGERPRINT", "AUTHORITIES", "LOG"];
    let environment = ours.map(|name| (format!("CHAPPE_{name}"), "x".to_owned()));
    let layers = Layers {
        environment: environment.to_vec(),
        ..Layers::default()
    };
    load(&layers).unwrap();
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

#[test]
fn a_certificate_has_its_key_or_is_made() {
    let hint = "set certificate and key under [http.tls], or self_signed = true alone";
    let table = [
        ("certificate = \"c.pem\"", "http.tls.certificate", 2),
        ("key = \"k.pem\"", "http.tls.key", 2),
        (
            "certificate = \"c.pem\"\nkey = \"k.pem\"\nself_signed = true",
            "http.tls.self_signed",
            4,
        ),
    ];
    for (text, key, line) in table {
        let error = load(&file(&format!("[http.tls]\n{text}"))).unwrap_err();
        let [problem] = &error.problems[..] else {
            panic!("{error}");
        };
        assert_eq!(problem.key.as_deref(), Some(key), "{error}");
        assert_eq!(problem.line, Some(line), "{error}");
        assert_eq!(problem.hint.as_deref(), Some(hint), "{error}");
    }
    let pair = "[http.tls]\ncertificate = \"c.pem\"\nkey = \"/k.pem\"";
    let tls = load(&file(pair)).unwrap().config.http.tls;
    assert_eq!(tls.certificate, Path::new("/etc/chappe/c.pem"));
    assert_eq!(tls.key, Path::new("/k.pem"));
}

#[test]
fn mail_needs_a_sender_and_an_account_its_password() {
    let problem = |text: &str| {
        let error = load(&file(text)).unwrap_err();
        let problem = error.problems.into_iter().next().unwrap();
        (problem.key.unwrap(), problem.message)
    };
    let (key, message) = problem("[mail]\nserver = \"mail.example\"");
    assert_eq!(
        (&*key, &*message),
        ("mail.server", "mail.sender is not set")
    );
    let text = "[mail]\nserver = \"mail.example\"\nsender = \"a@b.example\"\nuser = \"a\"";
    let (key, message) = problem(text);
    assert_eq!(
        (&*key, &*message),
        ("mail.user", "mail.password_file is not set")
    );
}

#[test]
fn signatures_have_no_way_around() {
    let load = |rest: &str| {
        let text = format!("[signatures]\nauthorities = \"ca.pem\"\n{rest}");
        load(&file(&text))
    };
    let table = [
        (
            "publication = \"required\"",
            "signatures.documents",
            "/uddi/wsdl",
        ),
        (
            "metadata = \"required\"\ndocuments = \"accepted\"",
            "signatures.publication",
            "/uddi/publish",
        ),
    ];
    for (text, key, path) in table {
        let error = load(text).unwrap_err();
        let [problem] = &error.problems[..] else {
            panic!("{error}");
        };
        assert_eq!(problem.key.as_deref(), Some(key), "{error}");
        assert!(problem.message.contains(path), "{error}");
        assert!(problem.hint.as_deref().unwrap().contains("required"));
    }
    let weak = "publication = \"required\"\nmetadata = \"required\"\ndocuments = \"accepted\"";
    let warnings = load(weak).unwrap().warnings();
    assert_eq!(warnings[0].key.as_deref(), Some("signatures.documents"));
    let warnings = load("devices = \"required\"").unwrap().warnings();
    assert_eq!(warnings[0].key.as_deref(), Some("signatures.events"));
    for fine in [
        "inquiry = \"required\"",
        "publication = \"accepted\"",
        "devices = \"required\"\nevents = \"accepted\"",
        "publication = \"required\"\nmetadata = \"required\"\ndocuments = \"required\"",
    ] {
        assert!(load(fine).unwrap().warnings().is_empty(), "{fine}");
    }
    let lists = "[http.tls]\nself_signed = true\nclient_revocation_lists = \"r.crl\"";
    let error = config::load(&file(lists)).unwrap_err();
    let key = error.problems[0].key.as_deref();
    assert_eq!(key, Some("http.tls.client_revocation_lists"));
}

#[test]
fn beyond_loopback_only_known_keys_read() {
    let key = "ab".repeat(32);
    let z85 = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6";
    let right = [
        "listen = \"127.0.0.1:0\"\npublish = \"[::1]:1\"".to_owned(),
        format!("listen = \"192.0.2.1:1\"\nallowed_keys = [\"{key}\", \"{z85}\"]"),
        "listen = \"192.0.2.1:1\"\ninsecure = true".to_owned(),
        "listen = \"192.0.2.1:1\"\nallowed_keys = [\"*\"]".to_owned(),
    ];
    for text in right {
        load(&file(&format!("[exchange]\n{text}"))).unwrap();
    }
    let wrong = [
        (
            "listen = \"192.0.2.1:1\"",
            "exchange.listen",
            "allowed_keys",
        ),
        (
            "listen = \"192.0.2.1:1\"\n[access]\ninsecure = true",
            "exchange.listen",
            "allowed_keys = [\"*\"]",
        ),
        (
            "directory = \"0.0.0.0:1\"",
            "exchange.directory",
            "allowed_keys",
        ),
        (
            "publish = \"localhost:1\"",
            "exchange.publish",
            "127.0.0.1:8471",
        ),
        (
            "allowed_keys = [\"ab\"]",
            "exchange.allowed_keys.0",
            "chappe key show",
        ),
    ];
    for (text, key, hint) in wrong {
        let error = load(&file(&format!("[exchange]\n{text}"))).unwrap_err();
        let problem = &error.problems[0];
        assert_eq!(problem.key.as_deref(), Some(key), "{error}");
        assert_eq!(problem.line, Some(2), "{error}");
        assert!(problem.hint.as_ref().unwrap().contains(hint), "{error}");
    }
    let both = format!("[exchange]\ninsecure = true\nallowed_keys = [\"{key}\"]");
    let error = load(&file(&both)).unwrap_err();
    assert!(error.to_string().contains("needs CURVE"), "{error}");
}

#[test]
fn the_hash_table_is_off_by_default_and_open_only_explicitly() {
    assert_eq!(Config::default().kad.address(), None);
    let owner = chappe_identity::Key::from_seed([1; 32]);
    let certificate = chappe_kad::Certificate::issue(&owner, &owner.public(), 1);
    let member = format!(
        "owner = \"{}\"\ncertificate = \"{certificate}\"",
        owner.public()
    );
    let right = [
        "listen = \"127.0.0.1:0\"\nentrances = [\"127.0.0.1:8473\"]".to_owned(),
        "listen = \"0.0.0.0:8473\"\nopen = true\nentrances = [\"192.0.2.7:8473\"]".to_owned(),
        format!("listen = \"0.0.0.0:8473\"\n{member}"),
    ];
    for text in right {
        load(&file(&format!("[kad]\n{text}"))).unwrap();
    }
    let wrong = [
        ("listen = \"0.0.0.0:8473\"", "kad.listen", "open = true"),
        (
            "entrances = [\"192.0.2.7:8473\"]",
            "kad.entrances",
            "kad.listen",
        ),
        (
            "entrances = [\"somewhere\"]",
            "kad.entrances.0",
            "127.0.0.1",
        ),
        ("owner = \"ab\"", "kad.owner", "chappe key admit"),
        (
            "certificate = \"ab\"",
            "kad.certificate",
            "chappe key admit",
        ),
    ];
    for (text, key, hint) in wrong {
        let error = load(&file(&format!("[kad]\n{text}"))).unwrap_err();
        let problem = &error.problems[0];
        assert_eq!(problem.key.as_deref(), Some(key), "{error}");
        assert_eq!(problem.line, Some(2), "{error}");
        assert!(problem.hint.as_ref().unwrap().contains(hint), "{error}");
    }
    let apart = "[kad]\nlisten = \"127.0.0.1:0\"\nentrances = [\"192.0.2.7:8473\"]";
    let error = load(&file(apart)).unwrap_err();
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}

#[cfg(feature = "dds")]
#[test]
fn the_former_tables_of_topics_are_named_with_their_replacement() {
    for (table, directory) in [("publish", "`exporters`"), ("subscribe", "`wrappers`")] {
        let text = format!("[[dds.{table}]]\nstream = \"a\"\ntopic = \"b\"");
        let error = load(&file(&text)).unwrap_err();
        let problem = &error.problems[0];
        assert_eq!(problem.key, Some(format!("dds.{table}")));
        assert_eq!(problem.line, Some(1), "{error}");
        let hint = problem.hint.as_deref().unwrap_or("");
        assert!(
            hint.contains(directory) && hint.contains("kind = \"dds\""),
            "{hint}"
        );
    }
}

#[test]
fn a_wrong_link_is_refused_with_its_line() {
    let link = |name: &str, more: &str| {
        format!(
            "[[links]]\nname = \"{name}\"\nkind = \"http_pull\"\n\
             address = \"http://127.0.0.1:1\"\nstreams = [\"a.*\"]\n{more}\n"
        )
    };
    let two = link("a", "") + &link("b", "as_prefix = \"x\"");
    let loaded = load(&file(&two)).unwrap();
    assert_eq!(loaded.config.links[1].as_prefix.as_deref(), Some("x"));

    let sample = "chappe config sample";
    let wrong = [
        (
            link("a", "") + &link("a", ""),
            "links.1.name",
            8,
            "another name",
        ),
        (
            link("a", "colour = 1"),
            "links.0.colour",
            6,
            "valid keys: address",
        ),
        (
            link("a", "").replace("http_pull", "htp_pull"),
            "links.0.kind",
            3,
            "http_pull",
        ),
        (
            link("a", "").replace("http://", "tcp://"),
            "links.0.address",
            4,
            sample,
        ),
        (link("a", "") + &link("B", ""), "links.1.name", 8, sample),
        ("[[links]]\nname = \"a\"".to_owned(), "links.0", 1, sample),
    ];
    for (text, key, line, hint) in wrong {
        let error = load(&file(&text)).unwrap_err();
        let problem = &error.problems[0];
        assert_eq!(problem.key.as_deref(), Some(key), "{error}");
        assert_eq!(problem.line, Some(line), "{error}");
        let found = problem.hint.as_deref().unwrap_or_default();
        assert!(found.contains(hint), "{error}: {found}");
    }
}

/// Whether a schema of Chappe accepts a value. Knows only the keywords that these schemas use.
fn accepts(
    root: &serde_json::Value,
    schema: &serde_json::Value,
    value: &serde_json::Value,
) -> bool {
    let pointer = schema["$ref"]
        .as_str()
        .and_then(|target| target.strip_prefix('#'));
    if let Some(pointer) = pointer {
        return accepts(root, root.pointer(pointer).unwrap(), value);
    }
    for choice in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[choice].as_array() {
            return choices.iter().any(|choice| accepts(root, choice, value));
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value);
    }
    if !schema["const"].is_null() {
        return schema["const"] == *value;
    }
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => value.is_null(),
    };
    let types = match &schema["type"] {
        serde_json::Value::String(name) => vec![name.as_str()],
        serde_json::Value::Array(names) => names.iter().filter_map(|n| n.as_str()).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.into_iter().any(is) {
        return false;
    }
    let number = value.as_f64().unwrap_or(0.0);
    if schema["minimum"]
        .as_f64()
        .is_some_and(|least| number < least && value.is_number())
        || schema["maximum"].as_f64().is_some_and(|most| number > most)
        || schema["minLength"].as_u64().is_some_and(|least| {
            value
                .as_str()
                .is_some_and(|text| (text.chars().count() as u64) < least)
        })
    {
        return false;
    }
    if let Some(items) = value.as_array() {
        let least = schema["minItems"].as_u64().unwrap_or(0);
        if (items.len() as u64) < least {
            return false;
        }
        let inner = &schema["items"];
        return inner.is_null() || items.iter().all(|item| accepts(root, inner, item));
    }
    let Some(members) = value.as_object() else {
        return true;
    };
    let known = |name: &str, member: &serde_json::Value| match &schema["properties"][name] {
        serde_json::Value::Null => schema["additionalProperties"] != false,
        inner => accepts(root, inner, member),
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let complete = required
        .filter_map(|name| name.as_str())
        .all(|name| members.contains_key(name));
    complete && members.iter().all(|(name, member)| known(name, member))
}

fn json(text: &str) -> serde_json::Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

#[test]
fn the_schema_for_editors_accepts_what_the_loader_accepts() {
    let schema = config::schema();
    // Each key at its default, and with values of every other type.
    let values = [
        "\"x\"",
        "\"\"",
        "3",
        "-1",
        "true",
        "1.5",
        "[]",
        "[1]",
        "{ a = 1 }",
        "99999999999",
    ];
    let mut texts = vec![
        sample(),
        uncommented(),
        "colour = 1".into(),
        "[http]\nx = 1".into(),
    ];
    for key in keys() {
        for value in values {
            let (table, name) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
            let head = if table.is_empty() {
                String::new()
            } else {
                format!("[{table}]\n")
            };
            texts.push(format!("{head}{name} = {value}"));
        }
    }
    let mut refused = 0;
    for text in texts {
        let loaded = load(&file(&text));
        // Editors do not check `format` (addresses, keys), and a schema cannot express contradictions
        // between keys.
        let beyond = loaded.as_ref().is_err_and(|error| {
            let texts = [
                "not an address",
                "not a network",
                "not a public key",
                "is not set",
                "no certificate is trusted",
                "this program was built without DDS Security",
            ];
            let is_beyond = |message: &str| texts.iter().any(|text| message.contains(text));
            error
                .problems
                .iter()
                .all(|problem| is_beyond(&problem.message))
        });
        let accepted = accepts(&schema, &schema, &json(&text));
        assert_eq!(accepted, loaded.is_ok() || beyond, "{text}: {loaded:?}");
        refused += usize::from(!accepted);
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn the_schema_of_sensors_accepts_what_their_loader_accepts() {
    let schema = config::sensor_schema();
    let right = "name = \"a\"\n[[source]]\nalias = \"x\"\nstream = \"s\"\nwindow = \"8s\"\n\
        slide = 2\nbind = \"all\"\nlate = \"drop\"\n[output]\nsql = \"select 1 as y\"\n\
        level = \"process\"\n[[output.field]]\nname = \"y\"\ntype = \"integer\"\n";
    let query = right.replace(
        "stream = \"s\"",
        "query = { observed_property = \"urn:a\" }",
    );
    let mut texts = vec![right.to_owned(), query];
    for (from, to) in [
        ("name = \"a\"", "name = 3"),
        ("name = \"a\"", ""),
        ("alias", "alais"),
        ("\"all\"", "\"some\""),
        ("\"drop\"", "true"),
        ("\"process\"", "\"disk\""),
        ("\"integer\"", "\"int\""),
        ("[[source]]", "[source]"),
        ("window = \"8s\"", "window = true"),
        ("[output]", "[output]\ncolour = 1"),
        ("[[output.field]]\nname = \"y\"", "[[output.field]]"),
    ] {
        let text = right.replace(from, to);
        assert_ne!(text, right, "{from}");
        texts.push(text);
    }
    // The loader alone knows that a statement is in `output.sql` or in `[[statement]]`.
    let text = right.replace("sql = \"select 1 as y\"", "");
    assert!(accepts(&schema, &schema, &json(&text)));
    assert!(chappe_stream::Descriptor::parse("a.toml", &text).is_err());
    for text in texts {
        let loaded = chappe_stream::Descriptor::parse("a.toml", &text);
        assert_eq!(
            accepts(&schema, &schema, &json(&text)),
            loaded.is_ok(),
            "{text}: {loaded:?}"
        );
    }
}

#[test]
fn a_flag_takes_a_list_in_toml_or_separated_by_commas() {
    let with = |value: &str| {
        let flag = Flag {
            name: "--set".into(),
            key: "discovery.interfaces".into(),
            value: value.into(),
        };
        load(&Layers {
            flags: vec![flag],
            ..Layers::default()
        })
    };
    for value in [r#"["lo", "eth0"]"#, "lo, eth0"] {
        assert_eq!(
            with(value).unwrap().config.discovery.interfaces,
            ["lo", "eth0"]
        );
    }
    assert!(with("[]").unwrap().config.discovery.interfaces.is_empty());
    for wrong in ["[\"lo\"", "[lo]", "[1]", "[]\nname = \"x\""] {
        let error = with(wrong).unwrap_err().to_string();
        assert!(error.contains("discovery.interfaces"), "{error}");
    }
}
