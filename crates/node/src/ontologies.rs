//! Ontologies of the node: RDF documents of a directory, each one entity and so one named graph.

use std::path::Path;

use chappe_registry::{
    Entity, MAX_DOCUMENT_BYTES, Principal, ResultFormat, Search, ontology, vocabulary,
};

use crate::registrar::NODE_OWNER;
use crate::shared::App;

/// Maximum number of documents; reason: a query that follows hierarchies reads all of them.
const DOCUMENTS_MAX: usize = 64;

/// Reads the documents `*.ttl`, `*.nt`, `*.rdf` and `*.owl` of a directory, in the order of their
/// names. A missing directory has none.
///
/// # Errors
/// The directory or a document cannot be read, or two documents have one key.
pub(crate) fn read(directory: &Path) -> Result<Vec<Entity>, String> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| format!("{}: {error}", directory.display()))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> = paths
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    paths.sort();
    let mut ontologies: Vec<Entity> = Vec::new();
    for path in paths {
        let fail = |reason: String| format!("{}: {reason}", path.display());
        let extension = path.extension().and_then(|extension| extension.to_str());
        let format = match extension {
            Some("ttl") => ResultFormat::Turtle,
            Some("nt") => ResultFormat::NTriples,
            Some("rdf" | "owl") => ResultFormat::RdfXml,
            _ => continue,
        };
        if ontologies.len() == DOCUMENTS_MAX {
            return Err(fail(format!("is more than document {DOCUMENTS_MAX}")));
        }
        let bytes = std::fs::metadata(&path).map_err(|error| fail(error.to_string()))?;
        if bytes.len() > MAX_DOCUMENT_BYTES as u64 {
            return Err(fail(format!("is longer than {MAX_DOCUMENT_BYTES} bytes")));
        }
        let document = std::fs::read(&path).map_err(|error| fail(error.to_string()))?;
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.filter(|stem| stem.bytes().all(is_plain));
        let stem = stem.ok_or_else(|| {
            fail("its name is not made of letters, digits, `-`, `_` and `.`".to_owned())
        })?;
        let base = format!("urn:chappe:ontology:{stem}");
        let read = ontology(format, None, &base, &document);
        let mut entity = read.map_err(|error| fail(error.to_string()))?;
        entity.owner = NODE_OWNER.to_owned();
        if ontologies.iter().any(|other| other.key == entity.key) {
            return Err(fail(format!("another document is {} too", entity.key)));
        }
        ontologies.push(entity);
    }
    Ok(ontologies)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Publishes the ontologies, and removes those whose documents are gone.
pub(crate) async fn publish(app: &App, ontologies: Vec<Entity>) {
    let search = Search {
        entity_type: Some(vocabulary::ONTOLOGY_TYPE.to_owned()),
        owner: Some(app.registrar.node_owner().to_owned()),
        ..Search::default()
    };
    let mut gone = app.registry.search_keys(&search, &Principal::Operator);
    gone.retain(|key| ontologies.iter().all(|entity| entity.key != *key));
    app.registrar.remove(gone).await;
    app.registrar.publish(ontologies).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_become_entities_and_bad_ones_name_their_file() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        assert_eq!(read(&directory.path().join("none")).unwrap(), []);
        write("a.ttl", "<urn:a> <urn:b> <#c> .");
        write("notes.txt", "not read");
        write(
            "b.owl",
            r#"<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
                xmlns:owl="http://www.w3.org/2002/07/owl#">
                <owl:Ontology rdf:about="http://e/kinds"/></rdf:RDF>"#,
        );
        let found = read(directory.path()).unwrap();
        let keys: Vec<&str> = found.iter().map(|entity| entity.key.as_str()).collect();
        assert_eq!(keys, ["urn:chappe:ontology:a", "http://e/kinds"]);
        assert!(found.iter().all(|entity| entity.owner == NODE_OWNER));
        let fault = |name: &str, text: &str| {
            write(name, text);
            let fault = read(directory.path()).unwrap_err();
            std::fs::remove_file(directory.path().join(name)).unwrap();
            assert!(fault.contains(name), "{fault}");
            fault
        };
        assert!(fault("c.ttl", "<urn:a>").contains("line 1"));
        assert!(fault("d.nt", &" ".repeat(MAX_DOCUMENT_BYTES + 1)).contains("longer"));
        assert!(fault("e e.nt", "").contains("letters"));
        let twice = "<http://e/kinds> a <http://www.w3.org/2002/07/owl#Ontology> .";
        assert!(fault("f.ttl", twice).contains("another"));
    }
}
