//! Goal: defects found by fuzzing stay fixed, and the fuzz targets' checks hold on their seeds.
//!
//! Method: passes every file of `fuzz/corpus/format_*` to the fuzz targets' functions, whole, truncated and
//! with each byte changed.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/format.rs"]
mod format;

/// The largest seed whose bytes are changed.
const CHANGED_MAX: usize = 400;

fn replay(name: &str, least: usize, check: impl Fn(&[u8])) {
    corpus::replay(&format!("format_{name}"), least, |bytes| {
        check(bytes);
        if bytes.len() > CHANGED_MAX {
            return;
        }
        for at in 0..bytes.len() {
            check(&bytes[..at]);
            let mut changed = bytes.to_vec();
            for change in [0x01, 0x10, 0xFF] {
                changed[at] = bytes[at] ^ change;
                check(&changed);
            }
        }
    });
}

macro_rules! corpora {
    ($($name:ident: $least:expr,)*) => {
        $(
            #[test]
            fn $name() {
                let name = stringify!($name);
                replay(name, $least, |bytes| format::check(name, bytes));
            }
        )*
    };
}

corpora! {
    json: 5,
    csv: 5,
    key_value: 3,
    regex: 2,
    line_protocol: 3,
    senml: 3,
    nmea: 2,
    binary: 2,
    xml: 3,
}

#[test]
fn config() {
    // Each change compiles a configuration, so only whole seeds are checked.
    corpus::replay("format_config", 9, format::check_config);
}
