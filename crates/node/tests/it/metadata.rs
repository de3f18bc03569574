//! Goal: accounts annotate what others published, over REST; a virtual sensor that asks for metadata binds
//! as the piece of an author that it names comes and goes, and a stranger's piece binds nothing.
//! Method: a node in this process with several accounts; requests over its socket.

use chappe_stream::{FieldType, Value};
use serde_json::{Value as Json, json};

use crate::common::devices::until;
use crate::common::{Answer, Operated, block, config, elements, get, send, write_sensor};
use crate::uddi::{attribute, code};

const PATH: &str = "/api/v1/registry/metadata";
const STREAM: &str = "urn:chappe:stream:main";

async fn ask(world: &Operated, token: &str, method: &str, path: &str, body: &Json) -> Answer {
    let credential = format!("Bearer {token}");
    let fields = [("Authorization", credential.as_str())];
    send(
        &world.node,
        method,
        path,
        &fields,
        body.to_string().as_bytes(),
    )
    .await
}

fn encoded(key: &str) -> String {
    key.replace(':', "%3A")
}

fn piece(subject: &str, value: &str) -> Json {
    json!({"subject": subject, "type": "urn:trust", "value": value})
}

/// Attaches a piece; returns its key.
async fn attach(world: &Operated, token: &str, body: &Json) -> String {
    let answer = ask(world, token, "POST", PATH, body).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["key"].as_str().unwrap().to_owned()
}

async fn delete(world: &Operated, token: &str, key: &str) -> Answer {
    let path = format!("{PATH}/{}", encoded(key));
    ask(world, token, "DELETE", &path, &Json::Null).await
}

#[test]
fn accounts_annotate_what_others_published() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let ada = world.account("ada", &["write"]).await;
        let eve = world.account("eve", &["write"]).await;
        let reader = world.account("reader", &["read"]).await;
        let pump = json!({"key": "urn:x:pump", "name": "Pump", "kind": "device"});
        let published = ask(&world, &eve, "POST", "/api/v1/entities", &pump).await;
        assert_eq!(published.status, 201, "{}", published.body);
        let key = attach(&world, &ada, &piece("urn:x:pump", "high")).await;
        let path = format!("{PATH}/{}", encoded(&key));
        let shown = get(&world.node, &path).await.json();
        assert_eq!(shown["author"], "ada");
        assert_eq!(shown["value"], "high");
        assert_eq!(shown["readers"], json!(["everybody"]));
        assert!(shown["date"].as_str().unwrap().ends_with('Z'), "{shown}");
        // Its author updates it, others do not.
        let other = piece("urn:x:pump", "low");
        let refused = ask(&world, &eve, "PUT", &path, &other).await;
        assert_eq!(refused.status, 403, "{}", refused.body);
        assert!(refused.body.contains("ada"), "{}", refused.body);
        assert_eq!(delete(&world, &eve, &key).await.status, 403);
        assert_eq!(ask(&world, &reader, "POST", PATH, &other).await.status, 403);
        assert_eq!(ask(&world, &ada, "PUT", &path, &other).await.status, 200);
        let graph = json!({"subject": "urn:x:pump", "type": "urn:place",
            "turtle": "<> <urn:near> <urn:x:ward/3> .", "readers": ["account:eve"]});
        let graph = attach(&world, &eve, &graph).await;
        let of_ada = ask(
            &world,
            &ada,
            "GET",
            &format!("{PATH}/{}", encoded(&graph)),
            &Json::Null,
        )
        .await;
        assert_eq!(of_ada.status, 404);
        let typed = json!({"subject": "urn:x:pump", "type": "urn:weight", "value": "4.5",
            "datatype": "http://www.w3.org/2001/XMLSchema#decimal"});
        attach(&world, &ada, &typed).await;
        // Lists in parts.
        let list = format!("{PATH}?subject=urn%3Ax%3Apump&limit=1");
        let first = ask(&world, &eve, "GET", &list, &Json::Null).await.json();
        let mut pieces = first["pieces"].as_array().unwrap().clone();
        let mut next = first["next"].clone();
        while let Some(cursor) = next.as_str() {
            let path = format!("{list}&cursor={cursor}");
            let part = ask(&world, &eve, "GET", &path, &Json::Null).await.json();
            pieces.extend(part["pieces"].as_array().unwrap().clone());
            next = part["next"].clone();
        }
        assert_eq!(pieces.len(), 3);
        let graphs = pieces.iter().filter(|piece| piece["graph"].is_array());
        assert_eq!(graphs.count(), 1);
        let public = get(&world.node, &format!("{PATH}?subject=urn%3Ax%3Apump"))
            .await
            .json();
        assert_eq!(public["pieces"].as_array().unwrap().len(), 2);
        let of_ada = get(&world.node, &format!("{PATH}?author=ada&type=urn:trust"))
            .await
            .json();
        assert_eq!(of_ada["pieces"][0]["value"], "low");
        // Finds by sequences.
        let find = format!("{PATH}/find");
        let asked = |value: &str| {
            json!({"criteria": [{"type": "urn:trust", "value": value, "authors": ["ada"]},
                {"type": "urn:weight", "from": "2020-01-01T00:00:00Z"}]})
        };
        for (value, entities) in [("low", json!(["urn:x:pump"])), ("high", json!([]))] {
            let found = ask(&world, &reader, "POST", &find, &asked(value)).await;
            assert_eq!(found.status, 200, "{}", found.body);
            assert_eq!(found.json()["entities"], entities, "{value}");
        }
        // Bad requests have a reason.
        for (method, path, body, status, words) in [
            (
                "POST",
                PATH,
                piece("urn:x:none", "x"),
                404,
                "no entity has the key urn:x:none",
            ),
            (
                "POST",
                PATH,
                json!({"subject": "urn:x:pump", "type": "urn:t"}),
                422,
                "is missing",
            ),
            (
                "POST",
                PATH,
                json!({"subject": "urn:x:pump", "type": "t", "value": ""}),
                422,
                "type",
            ),
            (
                "POST",
                PATH,
                json!({"subject": "urn:x:pump", "type": "urn:t", "turtle": "<"}),
                422,
                "graph",
            ),
            (
                "POST",
                PATH,
                json!({"subject": "urn:x:pump", "type": "urn:t", "value": "",
                "readers": ["ada"]}),
                422,
                "account:NAME",
            ),
            ("POST", &*find, json!({"criteria": []}), 422, "criteria"),
            ("GET", PATH, Json::Null, 422, "names neither"),
            (
                "GET",
                "/api/v1/registry/metadata?author=ada&cursor=x",
                Json::Null,
                400,
                "cursor",
            ),
        ] {
            let answer = ask(&world, &ada, method, path, &body).await;
            assert_eq!(answer.status, status, "{path} {body}: {}", answer.body);
            assert!(answer.body.contains(words), "{}", answer.body);
            assert!(answer.headers["content-type"].contains("problem+json"));
        }
        assert_eq!(delete(&world, &ada, &key).await.status, 204);
        assert_eq!(get(&world.node, &path).await.status, 404);
        // Nobody publishes an entity that looks like a piece.
        let forged = json!({"key": "urn:x:forged", "name": "x", "triples": [{
            "predicate": "https://chappe.example/ns#author", "object": "ada"}]});
        let refused = ask(&world, &eve, "POST", "/api/v1/entities", &forged).await;
        assert_eq!(refused.status, 422, "{}", refused.body);
        // Each change is recorded.
        let audit = json!({"sql": "select * from \"chappe.audit\""});
        let audit = world.change("POST", "/api/v1/streams/query", &audit).await;
        for operation in ["attach_metadata", "update_metadata", "delete_metadata"] {
            assert!(
                audit.body.contains(operation),
                "{operation}: {}",
                audit.body
            );
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn metadata_of_named_authors_binds_a_sensor() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let sensor = |name: &str, query: &str| {
            format!(
                "name = '{name}'\n[[source]]\nalias = 's'\nquery = {query}\n[output]\n\
                 sql = 'select v from s'\n[[output.field]]\nname = 'v'\ntype = 'integer'\n"
            )
        };
        let by_piece = r#"{ name_prefix = "main", metadata = [{ type = "urn:trust", value = "high", by = ["ada"] }] }"#;
        let select = "select ?stream where { ?stream <urn:trusted> true }";
        let by_triple = format!("{{ sparql = \"{select}\", by = [\"ada\"] }}");
        let of_node = format!("{{ sparql = \"{select}\" }}");
        for (name, query) in [
            ("piece", by_piece),
            ("triple", &*by_triple),
            ("strict", &*of_node),
        ] {
            write_sensor(directory.path(), name, &sensor(name, query));
        }
        let world = Operated::start(&config(directory.path()), None).await;
        let ada = world.account("ada", &["write"]).await;
        let eve = world.account("eve", &["write"]).await;
        let schema = elements::schema(&[("v", FieldType::Integer)]);
        let element = elements::element(1, vec![Value::Integer(1)]);
        world.node.store("main", &schema, &[element]).await.unwrap();
        until(
            &world.node,
            "/api/v1/entities/urn%3Achappe%3Astream%3Amain",
            |_| true,
        )
        .await;
        let is_bound = |sensor: &Json| sensor["sources"][0]["bound"][0]["stream"] == "main";
        let bound = async |name: &str, wanted: bool| {
            let path = format!("/api/v1/virtual-sensors/{name}");
            until(&world.node, &path, |sensor| is_bound(sensor) == wanted).await
        };
        let triple = |key: &str, object: &str| {
            json!({"key": key, "name": key, "triples": [{"subject": STREAM, "predicate": "urn:trusted",
                "object": object, "datatype": "http://www.w3.org/2001/XMLSchema#boolean"}]})
        };
        // A stranger's piece and triples, and ada's piece of another value.
        attach(&world, &eve, &piece(STREAM, "high")).await;
        attach(&world, &ada, &piece(STREAM, "low")).await;
        let of_eve = ask(
            &world,
            &eve,
            "POST",
            "/api/v1/entities",
            &triple("urn:x:eve", "true"),
        )
        .await;
        assert_eq!(of_eve.status, 201);
        // The last change that all sensors see before ada's.
        let found =
            json!({"criteria": [{"type": "urn:trust", "value": "high", "authors": ["ada"]}]});
        let none = ask(&world, &eve, "POST", &format!("{PATH}/find"), &found).await;
        assert_eq!(none.json()["entities"], json!([]));
        for name in ["piece", "triple", "strict"] {
            let shown = bound(name, false).await;
            assert_eq!(shown["state"], "waiting", "{shown}");
        }
        let key = attach(&world, &ada, &piece(STREAM, "high")).await;
        let shown = bound("piece", true).await;
        let why = shown["sources"][0]["bound"][0]["why"].as_str().unwrap();
        assert!(why.contains("urn:trust of ada"), "{why}");
        // Binding follows the registry in its order: by now the others have seen what eve said.
        let of_ada = ask(
            &world,
            &ada,
            "POST",
            "/api/v1/entities",
            &triple("urn:x:ada", "true"),
        )
        .await;
        assert_eq!(of_ada.status, 201);
        attach(&world, &ada, &piece(STREAM, "more")).await;
        bound("triple", true).await;
        let strict = get(&world.node, "/api/v1/virtual-sensors/strict")
            .await
            .json();
        assert!(!is_bound(&strict), "{strict}");
        assert_eq!(delete(&world, &ada, &key).await.status, 204);
        bound("piece", false).await;
        // It unbinds, too, when the lease of the piece is over.
        let mut leased = piece(STREAM, "high");
        leased["lease_s"] = json!(3_600);
        let key = attach(&world, &ada, &leased).await;
        bound("piece", true).await;
        leased["lease_s"] = json!(1);
        let path = format!("{PATH}/{}", encoded(&key));
        let short = ask(&world, &ada, "PUT", &path, &leased).await;
        assert_eq!((short.status, &short.json()["lease_s"]), (200, &json!(1)));
        bound("piece", false).await;
        assert_eq!(get(&world.node, &path).await.status, 404);
        let removed = ask(
            &world,
            &ada,
            "DELETE",
            "/api/v1/entities/urn%3Ax%3Aada",
            &Json::Null,
        )
        .await;
        assert_eq!(removed.status, 204);
        // A sensor searches again when a stream or a piece of metadata changes.
        attach(&world, &ada, &piece(STREAM, "none")).await;
        bound("triple", false).await;
        world.node.shutdown().await.unwrap();
    });
}

const SOAP: &str = "/uddi/metadata";

fn message(name: &str, attributes: &str, inner: &str) -> String {
    format!(
        "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body><m:{name} {attributes} \
         xmlns:m='http://www.grimoires.org/metadata.xsd' xmlns:u='urn:uddi-org:api_v2'>{inner}</m:{name}>\
         </s:Body></s:Envelope>"
    )
}

/// addMetadataToEntity of a text to the entity of a key.
fn add(token: &str, reference: &str, known: &str, value: &str) -> String {
    let inner = format!(
        "<u:authInfo>{token}</u:authInfo><m:entityReference entityType='urn:any'>{reference}\
         </m:entityReference><m:metadata m:metadataKey='{known}'><m:metadataType>urn:trust</m:metadataType>\
         <m:metadataValue><m:stringValue>{value}</m:stringValue></m:metadataValue></m:metadata>"
    );
    message("addMetadataToEntity", "", &inner)
}

fn bag(name: &str, author: &str) -> String {
    format!(
        "<m:{name}><m:metadataQuery><m:metadataType>urn:trust</m:metadataType><m:metadataValue>\
         <m:stringValue>high</m:stringValue></m:metadataValue><m:author>{author}</m:author>\
         <m:date>2020-01-01/</m:date></m:metadataQuery></m:{name}>"
    )
}

#[test]
fn the_interfaces_of_grimoires_annotate_and_find() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let bearer = world.account("ada", &["write"]).await;
        let ada = world.publisher("ada", &bearer).await;
        let eve = world.account("eve", &["write"]).await;
        let eve = world.publisher("eve", &eve).await;
        let business = world.business(&eve, "Ward 3").await;
        let service = |name: &str| {
            format!(
                "<businessService serviceKey='' businessKey='{business}'><name>{name}</name></businessService>"
            )
        };
        let both = service("Pulse rate") + &service("Pulse wave");
        let saved = world.publish(&eve, "save_service", &both).await;
        let key = attribute(&saved.body, "serviceKey");
        let ask = async |text: String| world.soap(SOAP, &text).await;
        let of_service = format!("<m:stringKey>{key}</m:stringKey>");
        // Who is not known attaches nothing, and the fault has both details.
        let nobody = ask(add("", &of_service, "", "high")).await;
        assert_eq!(code(&nobody), "E_authTokenRequired");
        assert!(
            nobody.body.contains("errorCode=\"E_authTokenRequired\""),
            "{}",
            nobody.body
        );
        let added = ask(add(&ada, &of_service, "", "high")).await;
        assert_eq!(added.status, 200, "{}", added.body);
        assert!(added.body.contains(">ada</meta:author>"), "{}", added.body);
        let piece = attribute(&added.body, "metadataKey");
        ask(add(&eve, &of_service, "", "high")).await;
        assert_eq!(
            code(&ask(add(&eve, &of_service, &piece, "low")).await),
            "E_userMismatch"
        );
        let unknown = "<m:stringKey>A0000000-0000-4000-8000-000000000000</m:stringKey>";
        assert_eq!(
            code(&ask(add(&ada, unknown, "", "x")).await),
            "E_invalidKeyPassed"
        );
        // A known key updates; a program without a token gives that of its account to HTTP.
        let credential = format!("Bearer {bearer}");
        let fields = [
            ("Authorization", credential.as_str()),
            ("Content-Type", "text/xml"),
        ];
        let update =
            add("", &of_service, &piece, "higher").replace("<u:authInfo></u:authInfo>", "");
        let updated = send(&world.node, "POST", SOAP, &fields, update.as_bytes()).await;
        assert_eq!(
            attribute(&updated.body, "metadataKey"),
            piece,
            "{}",
            updated.body
        );
        let of_piece = format!("<m:metadataKey>{piece}</m:metadataKey>");
        let detail = ask(message("get_metadataDetail", "", &of_piece)).await;
        assert!(
            detail.body.contains(">higher</meta:stringValue>"),
            "{}",
            detail.body
        );
        ask(add(&ada, &of_service, &piece, "high")).await;
        let reference =
            format!("<m:entityReference entityType='urn:any'>{of_service}</m:entityReference>");
        let first = ask(message("get_entityMetadata", "maxRows='1'", &reference)).await;
        assert_eq!(
            first.body.matches("metadataKey=").count(),
            1,
            "{}",
            first.body
        );
        let next = format!("cursor='{}'", attribute(&first.body, "next"));
        let second = ask(message("get_entityMetadata", &next, &reference)).await;
        assert_eq!(
            second.body.matches("metadataKey=").count(),
            1,
            "{}",
            second.body
        );
        assert_ne!(
            attribute(&first.body, "metadataKey"),
            attribute(&second.body, "metadataKey")
        );
        let found = ask(message(
            "find_entityByMetadata",
            "",
            &bag("metadataQueryBag", "ada"),
        ))
        .await;
        assert!(found.body.contains(&key.to_lowercase()), "{}", found.body);
        assert!(
            found.body.contains("ns/uddi#businessService"),
            "{}",
            found.body
        );
        let nobody = ask(message(
            "find_entityByMetadata",
            "",
            &bag("metadataQueryBag", "bob"),
        ))
        .await;
        assert!(!nobody.body.contains("urn:uuid"), "{}", nobody.body);
        let inner = format!("<u:name>pulse</u:name>{}", bag("metadataQueryBag", "ada"));
        let services = ask(message("find_service", "generic='2.0'", &inner)).await;
        assert_eq!(
            services.body.matches("<serviceInfo ").count(),
            1,
            "{}",
            services.body
        );
        assert_eq!(attribute(&services.body, "serviceKey"), key);
        // Parts of WSDL documents.
        let operation = "<m:operationReference><m:portTypeNamespace>http://e.com/p</m:portTypeNamespace>\
            <m:portTypeName>Pulse</m:portTypeName><m:operationName>get</m:operationName></m:operationReference>";
        let added = ask(add(&ada, operation, "", "high")).await;
        assert_eq!(added.status, 200, "{}", added.body);
        let inner = bag("operationMetadataQueryBag", "ada");
        let operations = ask(message("find_operation", "", &inner)).await;
        assert!(
            operations.body.contains(">get</meta:operationName>"),
            "{}",
            operations.body
        );
        let inner = bag("metadataQueryBag", "ada");
        let interfaces = ask(message("find_interfaceByOperationMetadata", "", &inner)).await;
        assert!(
            interfaces
                .body
                .contains("http://e.com/p#wsdl11.portType(Pulse)"),
            "{}",
            interfaces.body
        );
        let parts = ask(message("find_interfaceByMessagePartMetadata", "", &inner)).await;
        // The operation is none of a message's parts.
        assert!(parts.body.contains("uriBag"), "{}", parts.body);
        assert!(!parts.body.contains("wsdl11"), "{}", parts.body);
        let types = ask(message("get_supportedEntityType", "", "")).await;
        assert!(types.body.contains("ns#Device<"), "{}", types.body);
        for (text, expected) in [
            (
                message(
                    "get_metadataDetail",
                    "",
                    "<m:metadataKey>urn:x</m:metadataKey>",
                ),
                "E_invalidKeyPassed",
            ),
            (
                message("get_metadataDetail", "", "<m:other/>"),
                "E_fatalError",
            ),
            (message("get_everything", "", ""), "E_unsupported"),
            (
                message("find_entityByMetadata", "", "<m:metadataQueryBag/>"),
                "E_valueNotAllowed",
            ),
            (
                message("deleteMetadata", "", &of_piece),
                "E_authTokenRequired",
            ),
            ("<x/>".to_owned(), "E_fatalError"),
        ] {
            assert_eq!(code(&ask(text.clone()).await), expected, "{text}");
        }
        let inner = format!("<u:authInfo>{ada}</u:authInfo>{of_piece}");
        let deleted = ask(message("deleteMetadata", "", &inner)).await;
        assert!(
            deleted.body.contains(">true</meta:success>"),
            "{}",
            deleted.body
        );
        assert_eq!(
            code(&ask(message("deleteMetadata", "", &inner)).await),
            "E_invalidKeyPassed"
        );
        let wsdl = get(&world.node, "/uddi/metadata?wsdl").await;
        let location = format!("location=\"http://{}{SOAP}\"", world.node.address());
        assert!(wsdl.body.contains(&location), "{}", wsdl.body);
        let audit = json!({"sql": "select * from \"chappe.audit\""});
        let audit = world.change("POST", "/api/v1/streams/query", &audit).await;
        assert!(audit.body.contains("deleteMetadata"), "{}", audit.body);
        world.node.shutdown().await.unwrap();
    });
}
