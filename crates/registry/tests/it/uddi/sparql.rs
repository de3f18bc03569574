//! The query in docs/reference/registry-graph.md finds what an inquiry finds.

use chappe_registry::oxrdf::Term;
use chappe_registry::uddi::BusinessService;
use chappe_registry::{Interrupt, Principal, SparqlAnswer, SparqlLimits};

use super::{Desk, binding, reference, service};

#[test]
fn the_example_of_the_page_finds_the_service() {
    let mut desk = Desk::new();
    let color = desk.tmodel("ada", "color");
    let ward = desk.business("ada", "Ward 3");
    for (name, value) in [("Lamp", "red"), ("Sky", "blue")] {
        let one = BusinessService {
            category_bag: vec![reference(color, value)],
            bindings: vec![binding(None, &[color])],
            ..service(ward, name)
        };
        desk.save_service("ada", one).unwrap();
    }
    let page = include_str!("../../../../../docs/reference/registry-graph.md");
    let lines = page
        .lines()
        .skip_while(|line| !line.starts_with("    PREFIX"));
    let lines = lines.take_while(|line| line.starts_with("    "));
    let query: String = lines.flat_map(|line| [line, "\n"]).collect();
    let answer = desk.registry.sparql(
        &query,
        &Principal::Anonymous,
        &SparqlLimits::default(),
        &Interrupt::never(),
    );
    let SparqlAnswer::Solutions { rows, .. } = answer.unwrap() else {
        panic!("it is not a SELECT");
    };
    let texts = |row: &Vec<Option<Term>>| -> Vec<String> {
        row.iter().flatten().map(ToString::to_string).collect()
    };
    let rows: Vec<_> = rows.iter().map(texts).collect();
    assert_eq!(rows, [["\"Lamp\"", "\"http://example.com/\""]]);
}
