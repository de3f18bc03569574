//! Goal: `chappe exi` encodes, decodes, explains and compiles; errors name the remedy.
//! Method: the built program, with files and pipes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const XSD: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:element name="order"><xs:complexType><xs:sequence>
    <xs:element name="amount" type="xs:int" maxOccurs="unbounded"/>
  </xs:sequence><xs:attribute name="by" type="xs:string"/></xs:complexType></xs:element>
</xs:schema>"#;
const XML: &str = r#"<order by="Ada"><amount>3</amount><amount>70000</amount></order>"#;

fn chappe(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_chappe"))
        .arg("exi")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // The program does not read its input if it refuses its arguments.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn good(output: &Output) -> &[u8] {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    &output.stdout
}

#[test]
fn pipes_and_files_round_trip() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("order.xsd"), XSD).expect("it can be written");
    std::fs::write(folder.join("order.xml"), XML).expect("it can be written");
    for options in [
        &[][..],
        &["--compression"],
        &[
            "--alignment",
            "pre-compression",
            "--valuePartitionCapacity",
            "2",
        ],
        &["--schema", "order.xsd", "--strict"],
        &[
            "--schema",
            "order.xsd",
            "--schemaId",
            "o",
            "--alignment",
            "byte-alignment",
        ],
        &["--schema", "types", "--preserve.prefixes", "--cookie"],
        &["--schema", "dev1"],
        &["--canonical"],
    ] {
        let encode = [&["encode"], options].concat();
        let stream = good(&chappe(folder, &encode, XML.as_bytes())).to_vec();
        assert!(stream.len() < XML.len(), "{options:?}: {}", stream.len());
        let schema = options.iter().position(|one| *one == "--schema");
        let named = options.contains(&"--schemaId");
        let mut decode = vec!["decode"];
        decode.extend(schema.map_or(&[][..], |at| &options[at..at + if named { 4 } else { 2 }]));
        let document = chappe(folder, &decode, &stream);
        assert_eq!(String::from_utf8_lossy(good(&document)), XML, "{options:?}");
    }
    good(&chappe(
        folder,
        &["schema", "compile", "order.xsd", "-o", "order.exig"],
        b"",
    ));
    let compiled = [
        "encode",
        "order.xml",
        "--schema",
        "order.exig",
        "-o",
        "order.exi",
    ];
    good(&chappe(folder, &compiled, b""));
    let decode = ["decode", "order.exi", "--schema", "order.exig"];
    assert_eq!(good(&chappe(folder, &decode, b"")), XML.as_bytes());
}

#[test]
fn info_accounts_for_every_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for layout in ["--alignment=byte-alignment", "--compression"] {
        let stream = good(&chappe(folder, &["encode", layout], XML.as_bytes())).to_vec();
        let shown = chappe(folder, &["info", "--json"], &stream);
        let shown: serde_json::Value = serde_json::from_slice(good(&shown)).expect("it is JSON");
        assert_eq!(shown["bytes"], stream.len());
        assert_eq!(shown["options_in_header"], true);
        let kinds = shown["kinds"].as_array().expect("a list");
        let bits = |kind: &serde_json::Value| kind["bits"].as_u64().expect("a number");
        let sum: u64 = kinds.iter().map(bits).sum();
        let all = match layout {
            "--compression" => shown["bytes_before_compression"].as_u64(),
            _ => shown["bytes"].as_u64(),
        };
        // The rest is the header, below 8 bytes here.
        let header = all.expect("a number") * 8 - sum;
        assert!(header <= 64, "{header}");
        let names = shown["names"].as_array().expect("a list");
        let amount = names
            .iter()
            .find(|row| row["name"] == "amount" && row["of_it"] == "value");
        assert_eq!(amount.expect("it has values")["count"], 2);
        let table = String::from_utf8(good(&chappe(folder, &["info"], &stream)).to_vec());
        assert!(table.expect("it is text").contains("character data"));
    }
}

#[test]
fn errors_name_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("order.xsd"), XSD).expect("it can be written");
    let informed = ["encode", "--schema", "order.xsd"];
    let stream = good(&chappe(folder, &informed, XML.as_bytes())).to_vec();
    for (arguments, input, error, hint) in [
        (
            &["decode"][..],
            stream.as_slice(),
            "\"order\"",
            "--schema FILE",
        ),
        (&["decode"], XML.as_bytes(), "text XML", "chappe exi encode"),
        (&["encode"], b"<a><b></a>", "standard input", ""),
        (
            &["encode", "--schema", "order.xsd", "--strict"],
            b"<order><other/></order>",
            "element other",
            "--strict",
        ),
        (&["encode", "--schema", "none.exig"], b"", "none.exig", ""),
    ] {
        let output = chappe(folder, arguments, input);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(error), "{stderr}");
        assert!(
            hint.is_empty() || stderr.contains("hint: ") && stderr.contains(hint),
            "{stderr}"
        );
    }
}
