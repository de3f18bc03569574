//! The table of routes: each has an operation name and a decision on who may use it.
//!
//! A route cannot be added without a decision. The guard reads the decisions by method and path, and the OpenAPI
//! document takes its operation ids, security and refusals from here.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use chappe_identity::Role;

use crate::shared::App;

/// How an operation treats an account whose role is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restriction {
    /// It is refused: the operation concerns the whole node.
    Refused,
    /// It is refused unless the stream that the path names is one of the account's.
    ByStream,
    /// The handler answers only what the account may see or touch.
    Filtered,
}

/// Who may use an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The role; `None`: nobody needs a credential.
    pub(crate) role: Option<Role>,
    pub(crate) restriction: Restriction,
    /// Whether each use is recorded in the audit stream.
    pub(crate) is_audited: bool,
}

/// Needs no credential.
pub(crate) const OPEN: Needs = Needs {
    role: None,
    restriction: Restriction::Filtered,
    is_audited: false,
};
/// Needs the role `read`, unless reading is open.
pub(crate) const READ: Needs = Needs::role(Role::Read);
/// Needs the role `write`.
pub(crate) const WRITE: Needs = Needs::role(Role::Write);
/// Needs the role `operate`.
pub(crate) const OPERATE: Needs = Needs::role(Role::Operate);
/// Needs the role `administer`.
pub(crate) const ADMINISTER: Needs = Needs::role(Role::Administer);

impl Needs {
    const fn role(role: Role) -> Self {
        Self {
            role: Some(role),
            restriction: Restriction::Refused,
            is_audited: !matches!(role, Role::Read),
        }
    }

    /// Restricted accounts may use it for their streams; the part `{name}` of the path is the stream.
    pub(crate) const fn by_stream(mut self) -> Self {
        self.restriction = Restriction::ByStream;
        self
    }

    /// Restricted accounts may use it; the handler filters.
    pub(crate) const fn filtered(mut self) -> Self {
        self.restriction = Restriction::Filtered;
        self
    }

    /// Its uses are not recorded, because they are frequent and leave another trace.
    pub(crate) const fn unaudited(mut self) -> Self {
        self.is_audited = false;
        self
    }
}

/// An operation of the REST interface.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// Its name, which is unique.
    pub(crate) operation: &'static str,
    pub(crate) method: Method,
    /// Its path with variable parts in braces.
    pub(crate) path: String,
    pub(crate) needs: Needs,
}

/// Routes with their rules.
#[derive(Default)]
pub(crate) struct Routes {
    router: Router<App>,
    rules: Vec<Rule>,
    prefix: &'static str,
}

impl Routes {
    /// The prefix of the paths that follow.
    pub(crate) fn under(mut self, prefix: &'static str) -> Self {
        self.prefix = prefix;
        self
    }

    pub(crate) fn get<H: Handler<T, App>, T: 'static>(
        self,
        path: &str,
        operation: &'static str,
        needs: Needs,
        handler: H,
    ) -> Self {
        let method = on(MethodFilter::GET, handler);
        self.add(Method::GET, path, operation, needs, method)
    }

    pub(crate) fn post<H: Handler<T, App>, T: 'static>(
        self,
        path: &str,
        operation: &'static str,
        needs: Needs,
        handler: H,
    ) -> Self {
        let method = on(MethodFilter::POST, handler);
        self.add(Method::POST, path, operation, needs, method)
    }

    pub(crate) fn put<H: Handler<T, App>, T: 'static>(
        self,
        path: &str,
        operation: &'static str,
        needs: Needs,
        handler: H,
    ) -> Self {
        let method = on(MethodFilter::PUT, handler);
        self.add(Method::PUT, path, operation, needs, method)
    }

    pub(crate) fn patch<H: Handler<T, App>, T: 'static>(
        self,
        path: &str,
        operation: &'static str,
        needs: Needs,
        handler: H,
    ) -> Self {
        let method = on(MethodFilter::PATCH, handler);
        self.add(Method::PATCH, path, operation, needs, method)
    }

    pub(crate) fn delete<H: Handler<T, App>, T: 'static>(
        self,
        path: &str,
        operation: &'static str,
        needs: Needs,
        handler: H,
    ) -> Self {
        let method = on(MethodFilter::DELETE, handler);
        self.add(Method::DELETE, path, operation, needs, method)
    }

    fn add(
        mut self,
        method: Method,
        path: &str,
        operation: &'static str,
        needs: Needs,
        handler: MethodRouter<App, Infallible>,
    ) -> Self {
        let path = format!("{}{path}", self.prefix);
        self.router = self.router.route(&path, handler);
        self.rules.push(Rule {
            operation,
            method,
            path,
            needs,
        });
        self
    }

    pub(crate) fn into_parts(self) -> (Router<App>, Vec<Rule>) {
        (self.router, self.rules)
    }
}

/// Rules by path and method.
#[derive(Debug, Default)]
pub(crate) struct Rules(HashMap<String, Vec<Rule>>);

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        let mut by_path = HashMap::<String, Vec<Rule>>::new();
        for rule in rules {
            by_path.entry(rule.path.clone()).or_default().push(rule);
        }
        Self(by_path)
    }

    /// The rule of a method at a path of the table.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<&Rule> {
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        let rules = self.0.get(path)?;
        rules.iter().find(|rule| rule.method == *method)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn operations_have_names_of_their_own_and_variable_parts_that_decisions_need() {
        let (_, rules) = crate::http::routes().into_parts();
        let mut names = HashSet::new();
        for rule in &rules {
            assert!(names.insert(rule.operation), "{} twice", rule.operation);
            let is_by_stream = rule.needs.restriction == Restriction::ByStream;
            let has_name = rule.path.contains("{name}");
            assert!(!is_by_stream || has_name, "{}", rule.path);
            let is_safe = rule.method == Method::GET
                // Its handler records what it changes.
                || rule.operation == "publish_uddi"
                // It changes nothing.
                || rule.operation == "preview_virtual_sensor"
                || matches!(rule.needs.role, None | Some(Role::Read))
                || rule.needs == WRITE.by_stream().unaudited()
                || rule.needs == WRITE.unaudited();
            assert!(
                rule.needs.is_audited || is_safe,
                "{} changes something and is not recorded",
                rule.operation
            );
        }
    }
}
