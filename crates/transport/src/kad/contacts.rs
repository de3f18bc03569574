//! The known contacts of a node, stored for its next start: one a line, public key and address.

use std::io;
use std::path::Path;

use chappe_kad::Contact;

use crate::{SHARED, replace_file};

/// Contacts that are written and read. Reason: a table has about 200.
pub const CONTACTS_FILE_MAX: usize = 1_024;

/// Writes contacts.
///
/// # Errors
/// The operating system fails.
pub fn write_contacts(path: &Path, contacts: impl Iterator<Item = Contact>) -> io::Result<()> {
    let lines: Vec<String> = contacts
        .take(CONTACTS_FILE_MAX)
        .map(|contact| format!("{} {}\n", contact.public, contact.address))
        .collect();
    replace_file(path, SHARED, lines.concat().as_bytes())
}

/// Reads contacts; none if there is no file. Skips malformed lines: lost contacts are found again.
///
/// # Errors
/// The operating system fails.
pub fn read_contacts(path: &Path) -> io::Result<Vec<Contact>> {
    let text = match std::fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let contact = |line: &str| {
        let (public, address) = line.split_once(' ')?;
        Some(Contact {
            public: public.parse().ok()?,
            address: address.parse().ok()?,
        })
    };
    Ok(text
        .lines()
        .filter_map(contact)
        .take(CONTACTS_FILE_MAX)
        .collect())
}

#[cfg(test)]
mod tests {
    use chappe_identity::Key;

    use super::*;

    #[test]
    fn written_contacts_are_read_and_damage_costs_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contacts");
        assert!(read_contacts(&path).unwrap().is_empty());
        let contact = |number: u8, address: &str| Contact {
            public: Key::from_seed([number; 32]).public(),
            address: address.parse().unwrap(),
        };
        let both = [
            contact(1, "192.0.2.7:4000"),
            contact(2, "[2001:db8::1]:4001"),
        ];
        write_contacts(&path, both.into_iter()).unwrap();
        assert_eq!(read_contacts(&path).unwrap(), both);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("\u{0}rubbish\n{text}half a li")).unwrap();
        assert_eq!(read_contacts(&path).unwrap(), both);
    }
}
