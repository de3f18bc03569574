//! What must hold of GSN's descriptors for any bytes.

use chappe_gsn::descriptor::{GsnDescriptor, export, import};
use chappe_stream::Descriptor;

use crate::bounds::Bound;

/// The tree, the descriptor, its TOML and its XML, each at most some hundred bytes for a byte; SQLite checks
/// each of at most 64 statements.
const BOUND: Bound = Bound::memory(24 << 20, 2_000);

/// No panic; an error has a place in the file and gives no secret away; what is imported survives TOML,
/// and XML once more.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(read) = GsnDescriptor::read("x.xml", text) {
        let written = read.to_xml();
        // A longer spelling may exceed the limit of bytes; characters that XML lacks are replaced.
        if let Ok(mut again) = GsnDescriptor::read("x.xml", &written) {
            assert_eq!(again.streams.len(), read.streams.len(), "{written}");
            again.unknown.clear();
        }
    }
    let imported = match import("x.xml", text) {
        Ok(imported) => imported,
        Err(error) => {
            let lines = text.matches('\n').count() + 1;
            assert!((1..=lines).contains(&error.line), "{error}");
            return;
        }
    };
    let toml = imported.descriptor.to_toml();
    let again = Descriptor::parse("x.toml", &toml);
    assert_eq!(again.as_ref(), Ok(&imported.descriptor), "{toml}");
    let Ok((exported, _)) = export(&imported.descriptor) else {
        return;
    };
    if let Ok(back) = import("x.xml", &exported.to_xml()) {
        assert_eq!(
            back.descriptor.statements.len(),
            imported.descriptor.statements.len()
        );
    }
}
