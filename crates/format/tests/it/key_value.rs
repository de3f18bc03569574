//! Goal: lines of keys and values, with quotes and separators of all kinds.

use chappe_stream::Value;

use crate::common::{decode, refused, text, values};

#[test]
fn pairs_of_a_line() {
    let config = r#"
format = "key_value"
[[stream]]
name = "room.{room}"
fields = [{ name = "t", type = "double" }, { name = "m", path = "msg", type = "text" }]
"#;
    let body = b"t=21.5 room=A1 msg=\"a \\\"b\\\" \\\\ c\"\nt=20,room=a2;msg=ok\nroom=a3 & t=x\nnonsense\nt=1\n";
    let (elements, faults) = decode(config, body);
    assert_eq!(elements[0].0, "room.a1");
    assert_eq!(
        elements[0].1.values,
        [Value::Double(21.5), text("a \"b\" \\ c")]
    );
    assert_eq!(elements[1].1.values, [Value::Double(20.0), text("ok")]);
    assert_eq!(faults.len(), 3);
    assert!(faults[0].contains("not of type double"), "{faults:?}");
    assert!(faults[1].contains("is not a key"), "{faults:?}");
    assert!(faults[2].contains("no value for {room}"), "{faults:?}");
}

#[test]
fn a_whole_message_with_other_signs() {
    let config = r#"
format = { key_value = { assign = ":", between = "\n", whole = true } }
[[stream]]
name = "a"
fields = [{ name = "used", path = "MemUsed", type = "text" }, { name = "free", path = "Mem Free", type = "text" }]
"#;
    assert_eq!(
        values(config, b"MemUsed:   12 kB\nMem Free: \"1\"\n"),
        [vec![text("12 kB"), text("1")]]
    );
    assert!(refused(config, b"MemUsed: \"x").contains("no closing quote"));
}
