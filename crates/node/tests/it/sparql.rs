//! Goal: SPARQL over HTTP follows the protocol: three forms of a request, the choice of graphs, the
//! format of the answer; and ontologies of the node and of clients are followed on request.
//! Method: a node in this process; requests as text over its socket.

use chappe_node::Node;
use serde_json::{Value, json};

use crate::common::{Answer, Operated, block, config, send};

const SPARQL: &str = "/api/v1/sparql";
const ECG: &str = "http://example.com/kinds/Ecg";
const MONITOR: &str = "http://example.com/kinds/Monitor";
const RDF_TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn ask(node: &Node, query: &str, accept: &str) -> Answer {
    let path = format!("{SPARQL}?query={}", percent(query));
    send(node, "GET", &path, &[("Accept", accept)], b"").await
}

/// The values of the variable `?v`.
fn values(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let rows = &answer.json()["results"]["bindings"];
    let rows = rows.as_array().unwrap().iter();
    let text = |row: &Value| row["v"]["value"].as_str().unwrap().to_owned();
    let mut values: Vec<String> = rows.map(text).collect();
    values.sort_unstable();
    values
}

async fn publish(world: &Operated, entity: &Value) {
    let answer = world.change("POST", "/api/v1/entities", entity).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// A ward monitor, and a note about it that is another entity.
async fn publish_monitor(world: &Operated) {
    let kind = json!({"predicate": RDF_TYPE, "object": ECG, "object_kind": "iri"});
    let place = json!({"predicate": "urn:p:place", "object": "bed 7"});
    let types = json!(["{http://example.com/kinds}Ecg"]);
    publish(
        world,
        &json!({"key": "urn:m:1", "name": "monitor", "types": types, "triples": [kind, place]}),
    )
    .await;
    let said = json!({"subject": "urn:m:1", "predicate": "urn:p:place", "object": "bed 9"});
    publish(
        world,
        &json!({"key": "urn:n:1", "name": "note", "triples": [said]}),
    )
    .await;
}

#[test]
fn a_request_has_three_forms_and_chooses_its_graphs() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        publish_monitor(&world).await;
        let node = &world.node;
        let query = "SELECT ?v { <urn:m:1> <urn:p:place> ?v }";
        for (graphs, expected) in [
            ("", &["bed 7", "bed 9"][..]),
            ("&default-graph-uri=urn%3An%3A1", &["bed 9"]),
            (
                "&default-graph-uri=urn:n:1&default-graph-uri=urn:m:1",
                &["bed 7", "bed 9"],
            ),
            ("&default-graph-uri=http://127.0.0.1:9/", &[]),
            ("&named-graph-uri=urn:n:1", &[]),
            ("&format=json&results=json", &["bed 7", "bed 9"]),
        ] {
            let query = percent(query);
            let path = format!("{SPARQL}?query={query}{graphs}");
            let answer = send(node, "GET", &path, &[], b"").await;
            assert_eq!(values(&answer), expected, "{graphs}");
            let form = [("Content-Type", "application/x-www-form-urlencoded")];
            let body = format!("query={query}{graphs}");
            let answer = send(node, "POST", SPARQL, &form, body.as_bytes()).await;
            assert_eq!(values(&answer), expected, "form {graphs}");
        }
        let direct = [("Content-Type", "application/sparql-query; charset=utf-8")];
        let path = format!("{SPARQL}?named-graph-uri=urn:n:1");
        let query = "SELECT ?v { GRAPH ?g { <urn:m:1> ?p ?v } }";
        let answer = send(node, "POST", &path, &direct, query.as_bytes()).await;
        assert_eq!(values(&answer), ["bed 9"]);
        for path in [
            format!("{SPARQL}?query=ASK%7B%7D&query=ASK%7B%7D"),
            format!("{SPARQL}?update=CLEAR%20ALL"),
            format!("{SPARQL}?query=ASK%7B%7D&inferred=maybe"),
            SPARQL.to_owned(),
        ] {
            let answer = send(node, "GET", &path, &[], b"").await;
            assert_eq!(answer.status, 400, "{path}: {answer:?}");
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_format_is_that_which_the_client_accepts_most() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        publish_monitor(&world).await;
        let node = &world.node;
        let rows = "SELECT ?g ?v { GRAPH ?g { <urn:m:1> <urn:p:place> ?v } } ORDER BY ?v";
        let graph = "CONSTRUCT { ?g <urn:p:says> ?v } { GRAPH ?g { <urn:m:1> <urn:p:place> ?v } }";
        for (query, accept, kind, part) in [
            (rows, "*/*", "application/sparql-results+json", "\"bed 9\""),
            (
                rows,
                "application/xml;q=0.9, text/csv;q=0.1",
                "application/sparql-results+xml",
                "<literal>bed 9</literal>",
            ),
            (
                rows,
                "text/csv",
                "text/csv; charset=utf-8",
                "g,v\r\nurn:m:1,bed 7\r\n",
            ),
            (
                rows,
                "text/tab-separated-values",
                "text/tab-separated-values; charset=utf-8",
                "<urn:n:1>\t\"bed 9\"\n",
            ),
            (
                "ASK { ?s ?p ?o }",
                "application/sparql-results+xml",
                "application/sparql-results+xml",
                "<boolean>true</boolean>",
            ),
            (graph, "*/*", "text/turtle; charset=utf-8", "<urn:p:says>"),
            (
                graph,
                "application/n-triples",
                "application/n-triples",
                "<urn:n:1> <urn:p:says> \"bed 9\" .\n",
            ),
            (
                graph,
                "application/rdf+xml, */*;q=0.1",
                "application/rdf+xml",
                "rdf:about=\"urn:n:1\"",
            ),
            (
                "DESCRIBE <urn:m:1>",
                "text/turtle",
                "text/turtle; charset=utf-8",
                "\"monitor\"",
            ),
        ] {
            let answer = ask(node, query, accept).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.headers["content-type"], kind, "{query}");
            assert!(
                answer.body.contains(part),
                "{query} {accept}: {}",
                answer.body
            );
        }
        for (query, accept, offered) in [
            (rows, "text/html", "application/rdf+xml"),
            (rows, "text/turtle", "text/csv"),
            (
                graph,
                "text/csv, application/sparql-results+json",
                "application/n-triples",
            ),
            (
                "CONSTRUCT { ?s <urn:1> 1 } { ?s ?p ?o }",
                "application/rdf+xml",
                "text/turtle",
            ),
        ] {
            let answer = ask(node, query, accept).await;
            assert_eq!(answer.status, 406, "{answer:?}");
            let hint = answer.json()["hint"].as_str().unwrap().to_owned();
            assert!(hint.contains(offered), "{hint}");
        }
        world.node.shutdown().await.unwrap();
    });
}

/// The example of `docs/reference/sparql.md`.
#[test]
fn the_example_of_the_page_tells_who_says_what() {
    const PAGE: &str = include_str!("../../../../docs/reference/sparql.md");
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        publish_monitor(&world).await;
        let indented = PAGE.lines().skip_while(|line| !line.starts_with("    "));
        let example = indented.take_while(|line| line.starts_with("    "));
        let example: Vec<&str> = example.collect();
        let device = example[2].split_once("<urn:uuid:").unwrap().1;
        let device = format!("urn:uuid:{}", device.split_once('>').unwrap().0);
        let query = example.join("\n").replace(&device, "urn:m:1");
        let answer = ask(&world.node, &query, "text/csv").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer.body.contains("urn:p:place,bed 7,operator"),
            "{}",
            answer.body
        );
        assert!(
            answer.body.contains("urn:p:place,bed 9,operator"),
            "{}",
            answer.body
        );
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn ontologies_are_followed_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ontologies");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("kinds.ttl");
    let sub_class = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>";
    std::fs::write(&file, format!("<{ECG}> {sub_class} <{MONITOR}> .")).unwrap();
    block(async {
        let mut config = config(directory.path());
        config.registry.ontologies_directory = folder.clone();
        let world = Operated::start(&config, None).await;
        publish_monitor(&world).await;
        let is_a = async |world: &Operated, class: &str, inferred: &str| {
            let query = percent(&format!("ASK {{ <urn:m:1> a <{class}> }}"));
            let path = format!("{SPARQL}?query={query}{inferred}");
            let answer = send(&world.node, "GET", &path, &[], b"").await;
            answer.json()["boolean"].as_bool().unwrap()
        };
        let found = async |world: &Operated, inferred: &str| {
            let kind = percent("{http://example.com/kinds}Monitor");
            let path = format!("/api/v1/entities?type={kind}{inferred}");
            let answer = send(&world.node, "GET", &path, &[], b"").await;
            answer.json()["entities"].as_array().unwrap().len()
        };
        for (inferred, expected) in [
            ("", false),
            ("&inferred=false", false),
            ("&inferred=true", true),
        ] {
            assert_eq!(
                is_a(&world, MONITOR, inferred).await,
                expected,
                "{inferred}"
            );
            assert_eq!(
                found(&world, inferred).await,
                usize::from(expected),
                "{inferred}"
            );
        }
        // The operator adds a hierarchy, as RDF/XML.
        let device = "http://example.com/kinds/Device";
        let document = format!(
            "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' \
             xmlns:rdfs='http://www.w3.org/2000/01/rdf-schema#'><rdf:Description rdf:about='{MONITOR}'>\
             <rdfs:subClassOf rdf:resource='{device}'/></rdf:Description></rdf:RDF>"
        );
        let bearer = format!("Bearer {}", world.token);
        let path = "/api/v1/registry/ontologies/http%3A%2F%2Fexample.com%2Fmore";
        let put = async |kind: &str, path: &str, document: &str| {
            let fields = [("Authorization", bearer.as_str()), ("Content-Type", kind)];
            send(&world.node, "PUT", path, &fields, document.as_bytes()).await
        };
        assert_eq!(
            put("application/rdf+xml", path, &document).await.status,
            201
        );
        assert_eq!(
            put("application/rdf+xml", path, &document).await.status,
            200
        );
        assert!(is_a(&world, device, "&inferred=true").await);
        let bomb = format!("<!DOCTYPE a [<!ENTITY b 'c'>]>{document}");
        for (kind, path, document, status) in [
            ("application/json", path, "{}", 415),
            ("application/rdf+xml", path, bomb.as_str(), 422),
            ("text/turtle", path, "<a", 422),
            (
                "text/turtle",
                "/api/v1/registry/ontologies/urn%3Achappe%3Ax",
                "",
                422,
            ),
        ] {
            let answer = put(kind, path, document).await;
            assert_eq!(answer.status, status, "{answer:?}");
        }
        let token = world.token.clone();
        world.node.shutdown().await.unwrap();
        // Without its document an ontology of the node is gone after the next start.
        std::fs::remove_file(&file).unwrap();
        let world = Operated::start(&config, Some(token)).await;
        assert!(!is_a(&world, MONITOR, "&inferred=true").await);
        world.node.shutdown().await.unwrap();
        // A document that is none keeps the node from starting.
        std::fs::write(&file, "<a").unwrap();
        let error = Node::start(config).await.unwrap_err();
        assert!(error.to_string().contains("kinds.ttl"), "{error}");
    });
}
