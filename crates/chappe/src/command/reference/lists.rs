//! The pages of metrics, codes and functions of SQL, from their tables.

use chappe_stream::sqlite::reference::FUNCTIONS;
use chappe_transport::codes;

use super::markdown::{head, paragraph, row, table};

/// The page of the metrics.
pub(super) fn metrics() -> String {
    let mut page = head(
        "Metrics",
        "A node answers `GET /metrics` in the text format of OpenMetrics. Names begin with `chappe_`, times are in \
         seconds and sizes in bytes. A metric with labels is left out of the answer while it has no value. The \
         [codes](codes.md) explain the values of the label `reason`.",
    );
    page += &table(&["metric", "type", "unit", "meaning"]);
    for one in chappe_node::metrics() {
        let name = format!("`{}`", one.name);
        page += &row(&[
            &name,
            &one.kind,
            one.unit.as_deref().unwrap_or(""),
            one.help,
        ]);
    }
    page
}

/// The page of the codes.
pub(super) fn codes() -> String {
    let mut page = head(
        "Codes of errors, refusals and drops",
        "Everything that fails, is refused or is dropped has a code. Errors of the command line name it in the line \
         `more:`, problems of REST in `code` and `type`, the record of drops (`/api/v1/drops`) in `code`. Metrics and \
         the completeness of a stream show the reason itself: in lower case, with `_` between the words, it is the \
         code. `chappe explain CODE` prints the same text. The meaning of a code never changes. If an error of the \
         command line has no code, its message is complete. UDDI uses the error codes of its standard.",
    );
    let mut section = "";
    for one in codes::all() {
        if one.section != section {
            section = one.section;
            page += &format!("## {section}\n\n");
        }
        page += &format!("### {}\n\n", one.code);
        page += &paragraph(&format!("**{}.** {}", one.title, one.cause));
        page += &paragraph(&format!("Remedy: {}", one.remedy));
    }
    page.trim_end().to_owned() + "\n"
}

/// The page of the functions of SQL.
pub(super) fn sql_functions() -> String {
    let mut page = head(
        "SQL functions",
        "Queries of stored streams and of virtual sensors may call these functions of SQLite and of Chappe. None has \
         side effects, and all take time linear in the size of their arguments.",
    );
    let mut group = "";
    for one in FUNCTIONS {
        if one.group != group {
            group = one.group;
            page += &format!("## {group}\n\n{}", table(&["function", "result"]));
        }
        let calls = one.calls.replace("; ", "`, `");
        page += &row(&[&format!("`{calls}`"), one.result]);
        let is_last = FUNCTIONS.iter().rev().find(|it| it.group == group) == Some(one);
        page += if is_last { "\n" } else { "" };
    }
    page.trim_end().to_owned() + "\n"
}
