//! Goal: no query takes the registry down; each ends with an answer or an error that names its
//! limit.
//! Method: queries that multiply rows, recurse, grow texts or run long, on a thread with the stack
//! of an ordinary worker (2 MiB), with limits far below their needs.

use chappe_registry::oxrdf::{NamedNode, Triple};
use chappe_registry::{
    Entity, EntityKind, Interrupt, MemoryJournal, Principal, Registry, SparqlAnswer, SparqlError,
    SparqlLimits,
};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A ring of things, each linked to the next.
fn registry() -> Registry {
    static SHARED: LazyLock<Registry> = LazyLock::new(ring);
    SHARED.clone()
}

fn ring() -> Registry {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let node = |number: usize| NamedNode::new(format!("http://e/n{number}")).unwrap();
    for number in 0..300 {
        let mut entity = Entity::new(node(number).as_str(), EntityKind::Other, "a".repeat(200));
        let predicate = NamedNode::new("http://e/p").unwrap();
        for step in [1, 7] {
            let object = node((number + step) % 300);
            entity
                .triples
                .push(Triple::new(node(number), predicate.clone(), object));
        }
        registry.publish(entity).unwrap().wait().unwrap();
    }
    registry
}

fn limits() -> SparqlLimits {
    SparqlLimits {
        steps: 200_000,
        memory_bytes: 1024 * 1024,
        ..SparqlLimits::default()
    }
}

fn on_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    thread.spawn(work).unwrap().join().unwrap()
}

fn ask(query: String) -> Result<(), SparqlError> {
    on_small_stack(move || {
        let asked = registry().sparql(&query, &Principal::Operator, &limits(), &Interrupt::never());
        asked.map(|_| ())
    })
}

fn limit_of(query: &str) -> String {
    match ask(query.to_owned()) {
        Err(SparqlError::Limit { limit, .. }) => limit.to_owned(),
        Err(other) => other.to_string(),
        Ok(()) => "answered".to_owned(),
    }
}

#[test]
fn rows_that_multiply_end() {
    for query in [
        "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }",
        "SELECT * { { SELECT * { ?a ?b ?c } } { SELECT * { ?d ?e ?f } } FILTER(1 = 2) }",
        "SELECT (COUNT(*) AS ?n) { { SELECT ?a { ?a ?b ?c } } { SELECT ?a { ?a ?e ?f } } \
         { SELECT ?a { ?a ?h ?i } } { SELECT ?a { ?a ?k ?l } } }",
        "SELECT * { ?a ?b ?c MINUS { ?a ?d ?e . ?f ?g ?h } }",
        "SELECT * { ?a ?b ?c FILTER NOT EXISTS { ?d ?e ?f . ?g ?h ?i FILTER(?i = 0) } }",
        "SELECT * { ?a ?b ?c . ?d ?e ?f } ORDER BY ?c",
        "SELECT DISTINCT ?a ?d { ?a ?b ?c . ?d ?e ?f }",
        "SELECT (GROUP_CONCAT(?o) AS ?x) { ?s ?p ?o . ?t ?q ?r }",
        "SELECT * { ?a (<http://e/p>|^<http://e/p>)* ?b . ?b (<http://e/p>*)* ?c }",
        "SELECT * { ?a !<http://e/none>* ?b }",
    ] {
        let limit = limit_of(query);
        assert!(
            ["steps", "memory bytes", "rows"].contains(&limit.as_str()),
            "{limit}: {query}"
        );
    }
}

/// The evaluator holds all pairs of nodes that a path joins, unless one end is known.
#[test]
fn paths_between_unknown_nodes_hold_few_pairs() {
    let generous = |memory_bytes| SparqlLimits {
        steps: 20_000_000,
        memory_bytes,
        ..SparqlLimits::default()
    };
    let ask = |query: &str, memory_bytes| {
        let query = query.to_owned();
        on_small_stack(move || {
            let limits = generous(memory_bytes);
            registry().sparql(&query, &Principal::Operator, &limits, &Interrupt::never())
        })
    };
    let over = |query| match ask(query, 1 << 20) {
        Err(SparqlError::Limit { limit, .. }) => limit,
        other => panic!("{query}: {other:?}"),
    };
    // 90,000 pairs.
    for query in [
        "SELECT (COUNT(*) AS ?n) { ?a <http://e/p>+ ?b }",
        "SELECT (COUNT(*) AS ?n) { ?a <http://e/p>* ?b . ?b <http://e/p>* ?c }",
        "SELECT (COUNT(*) AS ?n) { ?a ^(<http://e/p>/<http://e/p>+) ?b }",
        "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?x ?y ?z } ?a (!<http://e/q>)+ _:b }",
        "SELECT (COUNT(*) AS ?n) { OPTIONAL { ?a <http://e/none> ?q } ?a <http://e/p>+ ?b }",
        "SELECT * { ?s <http://e/p> <http://e/n1> FILTER EXISTS { ?a <http://e/p>+ ?b FILTER(?b != ?a) } }",
    ] {
        assert_eq!(over(query), "memory bytes", "{query}");
    }
    for query in [
        "SELECT (COUNT(*) AS ?n) { ?a <http://e/p> ?c . ?c <http://e/p>+ ?b }",
        "SELECT (COUNT(*) AS ?n) { <http://e/n1> <http://e/p>* ?b }",
    ] {
        assert!(ask(query, 1 << 20).is_ok(), "{query}");
    }
    assert!(ask("ASK { ?a <http://e/p>+ ?b }", 64 << 20).is_ok());
}

#[test]
fn rows_made_without_touching_an_index_end() {
    let table: String = (0..200).map(|number| format!("{number} ")).collect();
    let tables: String = ["a", "b", "c", "d"]
        .map(|name| format!("VALUES ?{name} {{ {table} }} "))
        .concat();
    assert_eq!(
        limit_of(&format!("SELECT (COUNT(*) AS ?n) {{ {tables} }}")),
        "steps"
    );
    let doubling = "{ {} UNION {} } ".repeat(40);
    let doubled = format!("SELECT (COUNT(*) AS ?n) {{ {doubling} }}");
    assert_eq!(limit_of(&doubled), "steps");
}

#[test]
fn texts_that_grow_end() {
    let mut doubling = String::from("SELECT ?v30 { BIND(\"0123456789abcdef\" AS ?v0) ");
    for step in 0..30 {
        doubling += &format!("BIND(CONCAT(?v{step}, ?v{step}) AS ?v{}) ", step + 1);
    }
    doubling.push('}');
    assert_eq!(limit_of(&doubling), "bytes of a term");
    let nested = |depth: usize| {
        let open = "REPLACE(".repeat(depth);
        let close = ", \"a\", \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\")".repeat(depth);
        format!("SELECT * {{ ?s ?p ?o FILTER({open}STR(?o){close} = \"\") }}")
    };
    assert_eq!(limit_of(&nested(1)), "answered");
    assert_eq!(limit_of(&nested(8)), "bytes made by an expression");
}

#[test]
fn regular_expressions_are_literals_and_stop_when_told() {
    let query = "SELECT * { ?s ?p ?o FILTER REGEX(?o, ?o) }";
    assert!(limit_of(query).contains("not a literal"));
    // A slow match is followed by an evaluation of the interrupt at once, not after many matches.
    let bomb = "SELECT * { ?s ?p ?o FILTER REGEX(STR(?o), \"(a|aa)+(a*)*(.{0,20}){0,20}$\") }";
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    let third = Interrupt::when(|| LOOKS.fetch_add(1, Ordering::Relaxed) >= 2);
    let ended = registry().sparql(bomb, &Principal::Operator, &limits(), &third);
    assert_eq!(ended, Err(SparqlError::Interrupted));
    assert_eq!(LOOKS.load(Ordering::Relaxed), 3);
}

#[test]
fn deep_queries_fit_the_stack_or_are_refused() {
    let nest = |open: &str, inner: &str, close: &str, depth: usize| {
        format!(
            "SELECT * {{ ?s ?p ?o . {}{inner}{} }}",
            open.repeat(depth),
            close.repeat(depth)
        )
    };
    let inside = |start: &str, open: &str, inner: &str, close: &str, depth: usize| {
        let (open, close) = (open.repeat(depth), close.repeat(depth));
        format!("SELECT * {{ ?s ?p ?o . {start}{open}{inner}{close} ?x }}")
    };
    let chain = |start: &str, link: &str, end: &str, length: usize| {
        format!(
            "SELECT * {{ ?s ?p ?o . {start}{}{end} }}",
            link.repeat(length)
        )
    };
    for size in [5, 10, 20, 45, 90, 180, 3_000] {
        for query in [
            nest("{ ", "?s <http://e/none> ?c", " }", size),
            nest("OPTIONAL { ?s <http://e/none> ?c ", "", " }", size),
            nest("FILTER NOT EXISTS { ?s ?p ?o ", "", " }", size),
            nest("{ SELECT * { ", "?s <http://e/none> ?c", " } }", size),
            inside("?s <http://e/none> ", "[ <http://e/none> ", "1", " ]", size),
            inside("?s <http://e/none> ", "( ", "1", " )", size),
            inside("FILTER ", "( ", "?o = 1", " )", size),
            inside("FILTER ", "( 1 + ( 1 * ", "?o", " ) )", size),
            inside("FILTER ( ", "COALESCE( 1 = ", "?o", " )", size).replace(" ?x }", " ) }"),
            inside("?s ", "( <http://e/none> / ", "<http://e/none>", " )", size),
            inside("?s ", "( ^ ", "<http://e/none>", " )* ", size),
            chain("FILTER(?o = 1", " || ?o = 2", ")", size),
            chain("FILTER(?o = 1", "+1", ")", size),
            chain("FILTER(", "!", "?o)", size),
            chain("?s <http://e/none>", "/<http://e/none>", " ?x", size),
            chain("?s <http://e/none>", "|^<http://e/none>", " ?x", size),
            chain("?s (<http://e/none>", ")?", " ?x", 1),
            chain(
                "{ ?s <http://e/none> 1 }",
                " UNION { ?s <http://e/none> 1 }",
                "",
                size,
            ),
            chain("", "BIND(1 AS ?x) ", "", size),
            chain("?s ?p ?o", " . ?s <http://e/none> ?o", "", size),
            chain("", "OPTIONAL { ?s <http://e/none> ?x } ", "", size),
            chain("", "MINUS { ?s <http://e/none> ?x } ", "", size),
            chain("", "{ SELECT * { ?s <http://e/none> ?x } } ", "", size),
            nest("GRAPH ?g { ", "?s <http://e/none> ?c", " }", size),
            chain("", "GRAPH ?g { ?s <http://e/none> ?x } ", "", size),
            chain("FILTER(?o IN (1", ", 1", "))", size),
        ] {
            // Every query gets an answer, and the stack suffices.
            let _ = ask(query);
        }
    }
}

#[test]
fn what_is_not_offered_is_refused() {
    for (query, what) in [
        (
            "SELECT * { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }",
            "SERVICE",
        ),
        (
            "SELECT * { GRAPH ?g { { SELECT ?s { ?s ?p ?o } } } }",
            "a subquery inside GRAPH",
        ),
        (
            "SELECT * { GRAPH ?g { ?s ?p ?o BIND(1 AS ?g) } }",
            "a value for the variable",
        ),
        (
            "SELECT * { GRAPH ?g { ?s ?p ?o MINUS { OPTIONAL { ?s ?q ?r } } } }",
            "MINUS inside GRAPH",
        ),
        (
            "SELECT * { ?s ?p ?o FILTER(<http://e/f>(?o)) }",
            "a function",
        ),
        (
            "SELECT * { ?s ?p ?o FILTER(<chappe-internal:probe>(9)) }",
            "a function",
        ),
        (
            "SELECT * { ?s ?p ?o FILTER EXISTS { SERVICE <http://127.0.0.1/> { } } }",
            "SERVICE",
        ),
    ] {
        let error = ask(query.to_owned()).unwrap_err();
        assert!(
            matches!(&error, SparqlError::Unsupported(refused) if refused.starts_with(what)),
            "{error}: {query}"
        );
    }
    for query in [
        "LOAD <http://127.0.0.1/x>",
        "DELETE WHERE { ?s ?p ?o }",
        "",
        "SELECT * {",
    ] {
        assert!(
            matches!(ask(query.to_owned()), Err(SparqlError::Syntax(_))),
            "{query}"
        );
    }
}

#[test]
fn regular_expressions_that_would_be_compiled_for_each_row_are_refused() {
    let filter = |test: &str| format!("SELECT * {{ ?s ?p ?o BIND('i' AS ?f) FILTER({test}) }}");
    for (test, refused) in [
        ("REGEX(STR(?o), ?o)", "expression that is not a literal"),
        (
            "REGEX(STR(?o), 'a', ?f)",
            "flag of a regular expression that is not",
        ),
        (
            "REGEX(STR(?o), 'a', LCASE('I'))",
            "flag of a regular expression that is not",
        ),
        (
            "REPLACE(STR(?o), 'a', 'b', ?f) = 'b'",
            "flag of a regular expression that is not",
        ),
        ("REGEX(STR(?o), 'a', 'g')", "other than i, m, q, s and x"),
        ("REGEX(STR(?o), '(a')", "syntax of a regular expression"),
        (
            r"REGEX(STR(?o), '(\\p{L}{1,30}){1,30}N')",
            "limit of bytes of a compiled regular expression: 1000000",
        ),
        (
            r"EXISTS { ?s ?q ?r FILTER(REGEX(STR(?r), '(\\p{L}{1,30}){1,30}N')) }",
            "limit of bytes of a compiled regular expression: 1000000",
        ),
    ] {
        let error = ask(filter(test)).unwrap_err().to_string();
        assert!(error.contains(refused), "{error}: {test}");
    }
    let many = |count| vec!["REGEX(STR(?o), '[a-z]', 'i')"; count].join(" || ");
    ask(filter(&many(16))).unwrap();
    let error = ask(filter(&many(17))).unwrap_err().to_string();
    assert!(
        error.contains("limit of regular expressions: 16"),
        "{error}"
    );
    for accepted in [
        "REGEX(STR(?o), '(a', 'q')",
        "REGEX(STR(?o), 'A  b', 'imsx')",
        "REPLACE(STR(?o), '[a-f]+', 'x', 'i') = 'x'",
    ] {
        ask(filter(accepted)).unwrap();
    }
}

#[test]
fn answers_and_queries_are_bounded_and_the_interrupt_is_heard() {
    let registry = registry();
    let ask = |limits: SparqlLimits, interrupt: Interrupt| {
        let query = "SELECT * { ?s ?p ?o . ?t ?q ?u }";
        registry
            .sparql(query, &Principal::Operator, &limits, &interrupt)
            .unwrap_err()
    };
    let never = Interrupt::never;
    let limit = |limit, value| SparqlError::Limit { limit, value };
    let few = SparqlLimits {
        rows: 10,
        ..SparqlLimits::default()
    };
    assert_eq!(ask(few, never()), limit("rows", 10));
    let short = SparqlLimits {
        query_bytes: 10,
        ..SparqlLimits::default()
    };
    assert_eq!(ask(short, never()), limit("query bytes", 10));
    let small = SparqlLimits {
        result_bytes: 1000,
        ..SparqlLimits::default()
    };
    assert_eq!(ask(small, never()), limit("result bytes", 1000));
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let third = Interrupt::when(|| ASKED.fetch_add(1, Ordering::Relaxed) >= 2);
    let many = SparqlLimits {
        rows: usize::MAX,
        ..SparqlLimits::default()
    };
    assert_eq!(ask(many, third), SparqlError::Interrupted);
}

/// A graph that is not in the registry is empty, whatever its name; nothing is fetched.
#[test]
fn a_graph_is_never_fetched() {
    let registry = registry();
    let ask = |query: &str| {
        let limits = SparqlLimits::default();
        registry.sparql(query, &Principal::Operator, &limits, &Interrupt::never())
    };
    for (query, is_empty) in [
        ("SELECT * FROM <http://127.0.0.1:9/x> { ?s ?p ?o }", true),
        (
            "SELECT * FROM NAMED <file:///etc/passwd> { GRAPH ?g { ?s ?p ?o } }",
            true,
        ),
        (
            "SELECT * { GRAPH <http://127.0.0.1:9/x> { ?s ?p ?o } }",
            true,
        ),
        ("SELECT * { GRAPH ?g { ?s ?p ?o } } LIMIT 1", false),
    ] {
        match ask(query).unwrap() {
            SparqlAnswer::Solutions { rows, .. } => assert_eq!(rows.is_empty(), is_empty),
            other => panic!("{other:?}"),
        }
    }
}

/// Graphs are bounded as tables are, and a budget that ends leaves no partial graph.
#[test]
fn graphs_are_bounded() {
    let registry = registry();
    let ask = |query: &str, limits: SparqlLimits| {
        registry.sparql(query, &Principal::Operator, &limits, &Interrupt::never())
    };
    let limit = |limit, value| SparqlError::Limit { limit, value };
    for query in ["CONSTRUCT WHERE { ?s ?p ?o }", "DESCRIBE ?s { ?s ?p ?o }"] {
        let few = SparqlLimits {
            rows: 10,
            ..SparqlLimits::default()
        };
        assert_eq!(ask(query, few).unwrap_err(), limit("triples", 10));
        let small = SparqlLimits {
            result_bytes: 1000,
            ..SparqlLimits::default()
        };
        assert_eq!(ask(query, small).unwrap_err(), limit("result bytes", 1000));
        for steps in [1, 10, 100, 500] {
            let short = SparqlLimits {
                steps,
                ..SparqlLimits::default()
            };
            assert_eq!(ask(query, short).unwrap_err(), limit("steps", steps));
        }
    }
}

/// Text between `<` and `>` that the grammar parses as an IRI and the parser, after an operand, as
/// an expression: it must not hide nesting from the check.
#[test]
fn what_looks_like_an_iri_hides_no_nesting() {
    let deep = format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000));
    for query in [
        format!("SELECT * {{ ?s ?p ?o FILTER(?o<{deep}&&1>0) }}"),
        format!("SELECT * {{ ?s ?p ?o FILTER(?o<'a'+{deep}>0) }}"),
        format!("SELECT * {{ ?s ?p ?o FILTER(?o<1#>\"\"\"\n+{deep}) }}"),
        format!("SELECT * {{ ?s ?p ?o FILTER(?o<e:b\\+{deep}>0) }}"),
    ] {
        assert!(ask(query.clone()).is_err(), "{}", &query[..60]);
    }
}
