//! Goal: programs publish and find services over SOAP, with HTTP/1.0 too; each error of UDDI reaches its
//! sender as a fault; publication has the role, the shares and the records of REST.
//! Method: a node in this process; messages as text over its socket.

use chappe_node::Node;
use chappe_node::config::Read;
use serde_json::{Value as Json, json};

use crate::common::{Answer, Operated, block, config, get, own_address, raw, send};

const INQUIRY: &str = "/uddi/inquiry";
const PUBLISH: &str = "/uddi/publish";

fn envelope(name: &str, attributes: &str, inner: &str) -> String {
    format!(
        "<?xml version='1.0' encoding='UTF-8'?><s:Envelope \
         xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body><{name} generic='2.0' \
         xmlns='urn:uddi-org:api_v2' {attributes}>{inner}</{name}></s:Body></s:Envelope>"
    )
}

/// The text of the first attribute of this name.
pub(crate) fn attribute(text: &str, name: &str) -> String {
    let start = format!("{name}=\"");
    let found = text
        .split(&start)
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    found
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}

/// The code of a fault.
pub(crate) fn code(answer: &Answer) -> String {
    assert_eq!(answer.status, 500, "{answer:?}");
    assert!(answer.body.contains("<soap:Fault"), "{answer:?}");
    attribute(&answer.body, "errCode")
}

impl Operated {
    pub(crate) async fn soap(&self, path: &str, message: &str) -> Answer {
        let fields = [
            ("Content-Type", "text/xml; charset=utf-8"),
            ("SOAPAction", "\"\""),
        ];
        send(&self.node, "POST", path, &fields, message.as_bytes()).await
    }

    pub(crate) async fn ask(&self, name: &str, attributes: &str, inner: &str) -> Answer {
        self.soap(INQUIRY, &envelope(name, attributes, inner)).await
    }

    pub(crate) async fn publish(&self, token: &str, name: &str, inner: &str) -> Answer {
        let inner = format!("<authInfo>{token}</authInfo>{inner}");
        self.soap(PUBLISH, &envelope(name, "", &inner)).await
    }

    async fn login(&self, user: &str, credential: &str) -> Answer {
        let attributes = format!("userID='{user}' cred='{credential}'");
        self.soap(PUBLISH, &envelope("get_authToken", &attributes, ""))
            .await
    }

    /// The token of a publisher.
    pub(crate) async fn publisher(&self, user: &str, credential: &str) -> String {
        let answer = self.login(user, credential).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let rest = answer.body.split("<authInfo>").nth(1).unwrap();
        rest.split('<').next().unwrap().to_owned()
    }

    async fn operator(&self) -> String {
        self.publisher("operator", &self.token).await
    }

    /// The key of a new business.
    pub(crate) async fn business(&self, token: &str, name: &str) -> String {
        let business =
            format!("<businessEntity businessKey=''><name>{name}</name></businessEntity>");
        let answer = self.publish(token, "save_business", &business).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        attribute(&answer.body, "businessKey")
    }
}

#[test]
fn a_service_is_published_and_found() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let token = world.operator().await;
        let business = world.business(&token, "Ward 3").await;
        let service = format!(
            "<businessService serviceKey='' businessKey='{business}'><name xml:lang='en'>Heart rate</name>\
             <bindingTemplates><bindingTemplate bindingKey=''><accessPoint URLType='http'>http://a/</accessPoint>\
             <tModelInstanceDetails/></bindingTemplate></bindingTemplates></businessService>"
        );
        let saved = world.publish(&token, "save_service", &service).await;
        assert_eq!(saved.headers["content-type"], "text/xml; charset=utf-8");
        let key = attribute(&saved.body, "serviceKey");
        let found = world.ask("find_service", "", "<name>heart</name>").await;
        assert_eq!(found.status, 200, "{}", found.body);
        assert!(found.body.contains("truncated=\"false\""), "{}", found.body);
        assert_eq!(attribute(&found.body, "serviceKey"), key);
        assert_eq!(attribute(&found.body, "operator"), "test");
        let inner = format!("<serviceKey>{key}</serviceKey>");
        let detail = world.ask("get_serviceDetail", "", &inner).await.body;
        assert!(detail.contains("xml:lang=\"en\""), "{detail}");
        assert!(detail.contains(">http://a/</accessPoint>"), "{detail}");
        let inner = format!("<businessKey>{business}</businessKey>");
        let business = world.ask("get_businessDetail", "", &inner).await;
        assert_eq!(attribute(&business.body, "authorizedName"), "operator");
        // SPARQL sees the same.
        let entities = get(&world.node, "/api/v1/entities?prefix=heart")
            .await
            .json();
        assert_eq!(entities["entities"][0]["owner"], "operator");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn clients_of_http_1_0_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let message = envelope("find_tModel", "", "<name>uddi-org:http</name>");
        let host = format!("Host: {}\r\n", world.node.address());
        for host in ["", host.as_str()] {
            let head = format!(
                "POST {INQUIRY} HTTP/1.0\r\n{host}Content-Type: text/xml\r\nSOAPAction: \"\"\r\n\
                 Content-Length: {}\r\n\r\n",
                message.len()
            );
            let answer = raw(world.node.address(), &head, message.as_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            let key = attribute(&answer.body, "tModelKey");
            assert_eq!(key, "uuid:68DE9E80-AD09-469D-8A37-088422BFBC36");
        }
        // A page may not use the gap.
        let head = format!(
            "POST {INQUIRY} HTTP/1.0\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n"
        );
        assert_eq!(raw(world.node.address(), &head, b"").await.status, 403);
        let head = format!("POST {INQUIRY} HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(raw(world.node.address(), &head, b"").await.status, 421);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn each_port_describes_itself() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        for (path, name) in [
            (INQUIRY, "find_relatedBusinesses"),
            (PUBLISH, "get_registeredInfo"),
        ] {
            let answer = get(&world.node, &format!("{path}?wsdl")).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            assert_eq!(answer.headers["content-type"], "text/xml; charset=utf-8");
            let location = format!("location=\"http://{}{path}\"", world.node.address());
            assert!(answer.body.contains(&location), "{}", answer.body);
            let lang = format!(
                "schemaLocation=\"http://{}/uddi/xml.xsd\"",
                world.node.address()
            );
            assert!(answer.body.contains(&lang), "{}", answer.body);
            assert!(
                answer
                    .body
                    .contains(&format!("<operation name=\"{name}\">"))
            );
        }
        let lang = get(&world.node, "/uddi/xml.xsd").await;
        assert!(lang.body.contains("name=\"lang\""), "{}", lang.body);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn credentials_and_tokens_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let credential = world.account("ada", &["write"]).await;
        let reader = world.account("reader", &["read"]).await;
        let ward = world.account("ward", &["write=ward.*"]).await;
        for (user, credential) in [
            ("ada", "wrong"),
            ("ada", &*world.token),
            ("nobody", &*credential),
            ("", ""),
            ("reader", &*reader),
            ("ward", &*ward),
        ] {
            let answer = world.login(user, credential).await;
            assert_eq!(code(&answer), "E_unknownUser", "{user}");
        }
        let business = "<businessEntity businessKey=''><name>Ward</name></businessEntity>";
        for token in ["", "x", &*credential] {
            let answer = world.publish(token, "save_business", business).await;
            assert_eq!(code(&answer), "E_authTokenRequired");
        }
        let none = world
            .soap(PUBLISH, &envelope("save_business", "", business))
            .await;
        assert_eq!(code(&none), "E_authTokenRequired");
        // The sixteen newest tokens are valid; an older one has expired.
        let first = world.publisher("ada", &credential).await;
        let mut last = String::new();
        for _ in 0..16 {
            last = world.publisher("ada", &credential).await;
        }
        let answer = world.publish(&first, "get_registeredInfo", "").await;
        assert_eq!(code(&answer), "E_authTokenExpired");
        // It may still be discarded.
        let answer = world.publish(&first, "discard_authToken", "").await;
        assert_eq!(attribute(&answer.body, "errCode"), "E_success");
        assert_eq!(
            world.publish(&last, "get_registeredInfo", "").await.status,
            200
        );
        let answer = world.publish(&last, "discard_authToken", "").await;
        assert_eq!(attribute(&answer.body, "errCode"), "E_success");
        let answer = world.publish(&last, "get_registeredInfo", "").await;
        assert_eq!(code(&answer), "E_authTokenRequired");
        // A token ends with the credential for which it was given.
        let token = world.publisher("ada", &credential).await;
        let renewed = world
            .change("POST", "/api/v1/accounts/ada/token", &json!({}))
            .await;
        assert_eq!(renewed.status, 200, "{}", renewed.body);
        let answer = world.publish(&token, "get_registeredInfo", "").await;
        assert_eq!(code(&answer), "E_authTokenRequired");
        // Too many failures from one address.
        let mut codes = Vec::new();
        for _ in 0..25 {
            codes.push(code(&world.login("ada", "wrong").await));
        }
        assert_eq!(codes.last().unwrap(), "E_busy");
        world.operator().await;
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn errors_of_requests_reach_their_sender() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.http.max_body_bytes = 300_000;
        let world = Operated::start(&config, None).await;
        let ada = world.account("ada", &["write"]).await;
        let ada = world.publisher("ada", &ada).await;
        let eve = world.account("eve", &["write"]).await;
        let eve = world.publisher("eve", &eve).await;
        let business = world.business(&ada, "Ward 3").await;
        let key = format!("<businessKey>{business}</businessKey>");
        let unknown = "A0000000-0000-4000-8000-000000000000";
        let other = envelope("find_business", "", "").replace("generic='2.0'", "generic='1.0'");
        assert_eq!(
            code(&world.soap(INQUIRY, &other).await),
            "E_unrecognizedVersion"
        );
        let answer = world.publish(&eve, "delete_business", &key).await;
        assert_eq!(code(&answer), "E_userMismatch");
        let rename =
            format!("<businessEntity businessKey='{business}'><name>Mine</name></businessEntity>");
        let answer = world.publish(&eve, "save_business", &rename).await;
        assert_eq!(code(&answer), "E_userMismatch");
        let inner = format!("<serviceKey>{unknown}</serviceKey>");
        let answer = world.ask("get_serviceDetail", "", &inner).await;
        assert_eq!(code(&answer), "E_invalidKeyPassed");
        assert_eq!(attribute(&answer.body, "keyType"), "serviceKey");
        let qualifiers = |words: &str| format!("<findQualifiers>{words}</findQualifiers>");
        let qualifier = |word: &str| format!("<findQualifier>{word}</findQualifier>");
        let both = qualifier("sortByNameAsc") + &qualifier("sortByNameDesc");
        let answer = world.ask("find_business", "", &qualifiers(&both)).await;
        assert_eq!(code(&answer), "E_tooManyOptions");
        let answer = world
            .ask("find_business", "", &qualifiers(&qualifier("x")))
            .await;
        assert_eq!(code(&answer), "E_unsupported");
        let long = format!("<name>{}</name>", "x".repeat(256));
        assert_eq!(
            code(&world.ask("find_business", "", &long).await),
            "E_nameTooLong"
        );
        let twice = "<businessEntity businessKey=''><name xml:lang='en'>a</name><name xml:lang='en'>b\
                     </name></businessEntity>";
        let answer = world.publish(&ada, "save_business", twice).await;
        assert_eq!(code(&answer), "E_languageError");
        let nameless = "<businessEntity businessKey=''/>";
        let answer = world.publish(&ada, "save_business", nameless).await;
        assert_eq!(code(&answer), "E_valueNotAllowed");
        let projection = format!(
            "<businessEntity businessKey=''><name>a</name><businessServices><businessService \
             serviceKey='{unknown}' businessKey='{business}'/></businessServices></businessEntity>"
        );
        let answer = world.publish(&ada, "save_business", &projection).await;
        assert_eq!(code(&answer), "E_invalidProjection");
        let status = "<completionStatus>x</completionStatus>";
        let answer = world
            .publish(&ada, "get_assertionStatusReport", status)
            .await;
        assert_eq!(code(&answer), "E_invalidCompletionStatus");
        let assertion = format!(
            "<publisherAssertion><fromKey>{business}</fromKey><toKey>{business}</toKey><keyedReference \
             tModelKey='uuid:807A2C6A-EE22-470D-ADC7-E0424A337C03' keyValue='x'/></publisherAssertion>"
        );
        let answer = world
            .publish(&ada, "delete_publisherAssertions", &assertion)
            .await;
        assert_eq!(code(&answer), "E_assertionNotFound");
        let large = format!("<name>{}</name>", " ".repeat(300_000));
        assert_eq!(
            code(&world.ask("find_business", "", &large).await),
            "E_messageTooLarge"
        );
        assert_eq!(code(&world.soap(INQUIRY, "no xml").await), "E_fatalError");
        assert_eq!(
            code(&world.ask("save_business", "", "").await),
            "E_unsupported"
        );
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_account_publishes_within_its_share() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.registry.max_bytes = 1 << 20;
        let world = Operated::start(&config, None).await;
        let ada = world.account("ada", &["write"]).await;
        let ada = world.publisher("ada", &ada).await;
        let service = format!(
            "<businessService serviceKey=''><description>{}</description></businessService>",
            "x".repeat(255)
        );
        let business = format!(
            "<businessEntity businessKey=''><name>Ward</name><businessServices>{}</businessServices>\
             </businessEntity>",
            service.repeat(100)
        );
        let mut refused = None;
        for _ in 0..10 {
            let answer = world.publish(&ada, "save_business", &business).await;
            if answer.status != 200 {
                refused = Some(answer);
                break;
            }
        }
        assert_eq!(code(&refused.unwrap()), "E_accountLimitExceeded");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn without_a_store_publishers_are_told_to_wait() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        // At another address the node would wait for room for its own entity.
        let mut config = config(directory.path());
        config.http.listen = (own_address(), 0).into();
        let world = Operated::start(&config, None).await;
        config.http.listen = world.node.address();
        world.node.shutdown().await.unwrap();
        let token = world.token;
        config.log.min_free_bytes = u64::MAX / 4;
        let node = Node::start(config).await.unwrap();
        let world = Operated { node, token };
        let operator = world.operator().await;
        let business = "<businessEntity businessKey=''><name>Ward</name></businessEntity>";
        let answer = world.publish(&operator, "save_business", business).await;
        assert_eq!(code(&answer), "E_busy");
        assert!(answer.body.contains("soap:Server"), "{}", answer.body);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn inquiries_need_the_role_for_reading() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.access.read = Read::Token;
        let world = Operated::start(&config, None).await;
        let reader = world.account("reader", &["read"]).await;
        let writer = world.account("writer", &["write"]).await;
        let ward = world.account("ward", &["read=ward.*"]).await;
        let message = envelope("find_business", "", "");
        let ask = async |token: &str| {
            let credential = format!("Bearer {token}");
            let fields = [("Authorization", credential.as_str())];
            send(&world.node, "POST", INQUIRY, &fields, message.as_bytes())
                .await
                .status
        };
        assert_eq!(world.soap(INQUIRY, &message).await.status, 401);
        assert_eq!(
            (ask(&reader).await, ask(&writer).await, ask(&ward).await),
            (200, 403, 403)
        );
        assert_eq!(get(&world.node, "/uddi/inquiry?wsdl").await.status, 200);
        // Publication needs no role for reading.
        let token = world.publisher("writer", &writer).await;
        world.business(&token, "Ward 3").await;
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn value_sets_are_read_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("taxonomies");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("4E49A8D6-D5A2-4FC2-93A0-0411D8D19E88.txt");
    std::fs::write(&file, "@categoryBag\nDE\tGermany\nFR\tFrance\n").unwrap();
    block(async {
        let mut config = config(directory.path());
        config.registry.taxonomies_directory = folder;
        let world = Operated::start(&config, None).await;
        let token = world.operator().await;
        let business = |bag: &str, value: &str| {
            format!(
                "<businessEntity businessKey=''><name>Ward</name><{bag}><keyedReference keyValue='{value}' \
                 tModelKey='uuid:4E49A8D6-D5A2-4FC2-93A0-0411D8D19E88'/></{bag}></businessEntity>"
            )
        };
        let save = async |bag: &str, value: &str| {
            let entity = business(bag, value);
            world.publish(&token, "save_business", &entity).await
        };
        assert_eq!(save("categoryBag", "DE").await.status, 200);
        assert_eq!(code(&save("categoryBag", "XX").await), "E_invalidValue");
        assert_eq!(
            code(&save("identifierBag", "DE").await),
            "E_valueNotAllowed"
        );
        let checked = world
            .ask("validate_values", "", &business("categoryBag", "FR"))
            .await;
        assert_eq!(attribute(&checked.body, "errCode"), "E_success");
        let checked = world
            .ask("validate_values", "", &business("categoryBag", "XX"))
            .await;
        assert_eq!(code(&checked), "E_invalidValue");
        let unvalidatable = "<tModel tModelKey=''><name>offline</name><categoryBag><keyedReference \
            tModelKey='uuid:C1ACF26D-9672-4404-9D70-39B756E62AB4' keyValue='unvalidatable'/>\
            </categoryBag></tModel>";
        let saved = world.publish(&token, "save_tModel", unvalidatable).await;
        let key = attribute(&saved.body, "tModelKey");
        let entity = format!(
            "<businessEntity businessKey=''><name>Ward</name><categoryBag><keyedReference keyValue='x' \
             tModelKey='{key}'/></categoryBag></businessEntity>"
        );
        let answer = world.publish(&token, "save_business", &entity).await;
        assert_eq!(code(&answer), "E_unvalidatable");
        world.node.shutdown().await.unwrap();
        // A value set that cannot be read must not be taken as one that checks nothing.
        std::fs::write(&file, "@somewhere\n").unwrap();
        let error = Node::start(config).await.err().unwrap().to_string();
        assert!(error.contains("line 1"), "{error}");
    });
}

#[test]
fn publication_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let ada = world.account("ada", &["write"]).await;
        let token = world.publisher("ada", &ada).await;
        let key = world.business(&token, "Ward 3").await;
        let wrong = "<businessKey>A0000000-0000-4000-8000-000000000000</businessKey>";
        world.publish(&token, "delete_business", wrong).await;
        let path = "/api/v1/streams/chappe.audit/elements?limit=100";
        let records = world.change("GET", path, &Json::Null).await.body;
        assert!(records.contains("uddi_publish"), "{records}");
        assert!(
            records.contains(&format!("save_business {key}")),
            "{records}"
        );
        assert!(
            records.contains("delete_business E_invalidKeyPassed"),
            "{records}"
        );
        world.node.shutdown().await.unwrap();
    });
}
