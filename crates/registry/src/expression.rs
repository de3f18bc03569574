//! The properties of expressions and patterns that the planner needs: variables, sizes and parts.

use std::collections::HashSet;

use oxrdf::{BlankNode, NamedNode, Variable};
use regex::RegexBuilder;
use spargebra::algebra::{
    AggregateExpression, Expression, Function, GraphPattern, OrderExpression,
    PropertyPathExpression,
};
use spargebra::term::{NamedNodePattern, TermPattern};

use crate::entity::MAX_TERM_BYTES;
use crate::limits::SparqlError;

/// Maximum length of a text that one evaluation of an expression can make, computed from its form:
/// REPLACE and similar functions multiply.
const MAX_EXPRESSION_BYTES: usize = 4 * 1024 * 1024;
/// Maximum size of a compiled regular expression in bytes; reason: that of the evaluator, which compiles a larger one
/// anew for each row only to refuse it.
const REGEX_BYTES_MAX: usize = 1_000_000;
/// Assumed length of the text of a number, a date, a hash or an identifier.
const SMALL_BYTES: usize = 512;

/// The direct parts of an expression.
fn parts(expression: &Expression) -> Vec<&Expression> {
    use Expression as E;
    match expression {
        E::NamedNode(_) | E::Literal(_) | E::Variable(_) | E::Bound(_) | E::Exists(_) => Vec::new(),
        E::Or(a, b)
        | E::And(a, b)
        | E::Equal(a, b)
        | E::SameTerm(a, b)
        | E::Greater(a, b)
        | E::GreaterOrEqual(a, b)
        | E::Less(a, b)
        | E::LessOrEqual(a, b)
        | E::Add(a, b)
        | E::Subtract(a, b)
        | E::Multiply(a, b)
        | E::Divide(a, b) => vec![a, b],
        E::UnaryPlus(a) | E::UnaryMinus(a) | E::Not(a) => vec![a],
        E::If(a, b, c) => vec![a, b, c],
        E::In(a, list) => std::iter::once(&**a).chain(list).collect(),
        E::Coalesce(list) | E::FunctionCall(_, list) => list.iter().collect(),
    }
}

/// Calls `look` on the expression and all its parts, but not inside EXISTS.
pub(crate) fn visit<'e>(expression: &'e Expression, look: &mut impl FnMut(&'e Expression)) {
    let mut waiting = vec![expression];
    while let Some(next) = waiting.pop() {
        look(next);
        waiting.extend(parts(next));
    }
}

/// Whether it contains EXISTS anywhere.
pub(crate) fn has_exists(expression: &Expression) -> bool {
    let mut found = false;
    visit(expression, &mut |part| {
        found |= matches!(part, Expression::Exists(_))
    });
    found
}

/// All variables it may read, including those of patterns inside EXISTS.
pub(crate) fn variables(expression: &Expression) -> HashSet<Variable> {
    let mut found = HashSet::new();
    visit(expression, &mut |part| match part {
        Expression::Variable(name) | Expression::Bound(name) => {
            found.insert(name.clone());
        }
        Expression::Exists(inner) => pattern_variables(inner, &mut found),
        _ => {}
    });
    found
}

/// Replaces the patterns inside EXISTS.
pub(crate) fn map_exists(
    expression: Expression,
    change: &mut impl FnMut(GraphPattern) -> GraphPattern,
) -> Expression {
    use Expression as E;
    if !has_exists(&expression) {
        return expression;
    }
    let mut boxed = |inner: Box<Expression>| Box::new(map_exists(*inner, change));
    match expression {
        E::Or(a, b) => E::Or(boxed(a), boxed(b)),
        E::And(a, b) => E::And(boxed(a), boxed(b)),
        E::Equal(a, b) => E::Equal(boxed(a), boxed(b)),
        E::SameTerm(a, b) => E::SameTerm(boxed(a), boxed(b)),
        E::Greater(a, b) => E::Greater(boxed(a), boxed(b)),
        E::GreaterOrEqual(a, b) => E::GreaterOrEqual(boxed(a), boxed(b)),
        E::Less(a, b) => E::Less(boxed(a), boxed(b)),
        E::LessOrEqual(a, b) => E::LessOrEqual(boxed(a), boxed(b)),
        E::Add(a, b) => E::Add(boxed(a), boxed(b)),
        E::Subtract(a, b) => E::Subtract(boxed(a), boxed(b)),
        E::Multiply(a, b) => E::Multiply(boxed(a), boxed(b)),
        E::Divide(a, b) => E::Divide(boxed(a), boxed(b)),
        E::UnaryPlus(a) => E::UnaryPlus(boxed(a)),
        E::UnaryMinus(a) => E::UnaryMinus(boxed(a)),
        E::Not(a) => E::Not(boxed(a)),
        E::If(a, b, c) => E::If(boxed(a), boxed(b), boxed(c)),
        E::In(a, list) => E::In(
            boxed(a),
            list.into_iter().map(|e| *boxed(Box::new(e))).collect(),
        ),
        E::Coalesce(list) => E::Coalesce(list.into_iter().map(|e| *boxed(Box::new(e))).collect()),
        E::FunctionCall(function, list) => {
            let list = list.into_iter().map(|e| *boxed(Box::new(e))).collect();
            E::FunctionCall(function, list)
        }
        E::Exists(inner) => E::Exists(Box::new(change(*inner))),
        other => other,
    }
}

/// The expression of an ORDER BY condition.
pub(crate) fn of_order(order: &OrderExpression) -> &Expression {
    match order {
        OrderExpression::Asc(expression) | OrderExpression::Desc(expression) => expression,
    }
}

/// Rejects an expression whose evaluation could make a huge text.
pub(crate) fn check_size(expression: &Expression) -> Result<(), SparqlError> {
    if most_bytes(expression) > MAX_EXPRESSION_BYTES {
        let value = MAX_EXPRESSION_BYTES as u64;
        return Err(SparqlError::Limit {
            limit: "bytes made by an expression",
            value,
        });
    }
    Ok(())
}

/// Rejects a regular expression that the evaluator would compile for each row: it compiles those once that are literals,
/// together with their flags, and that it accepts.
pub(crate) fn check_regex(
    pattern: Option<&Expression>,
    flags: Option<&Expression>,
) -> Result<(), SparqlError> {
    let unsupported = |what| Err(SparqlError::Unsupported(what));
    let Some(Expression::Literal(pattern)) = pattern else {
        return unsupported("a regular expression that is not a literal");
    };
    let flags = match flags {
        None => "",
        Some(Expression::Literal(flags)) => flags.value(),
        Some(_) => return unsupported("a flag of a regular expression that is not a literal"),
    };
    let escaped;
    let pattern = match flags.contains('q') {
        true => {
            escaped = regex::escape(pattern.value());
            &escaped
        }
        false => pattern.value(),
    };
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(REGEX_BYTES_MAX);
    for flag in flags.chars() {
        match flag {
            'i' => builder.case_insensitive(true),
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'x' => builder.ignore_whitespace(true),
            'q' => &mut builder,
            _ => return unsupported("a flag of a regular expression other than i, m, q, s and x"),
        };
    }
    match builder.build() {
        Ok(_) => Ok(()),
        Err(regex::Error::CompiledTooBig(_)) => Err(SparqlError::Limit {
            limit: "bytes of a compiled regular expression",
            value: REGEX_BYTES_MAX as u64,
        }),
        Err(_) => unsupported("the syntax of a regular expression"),
    }
}

/// The maximum number of bytes that evaluating the expression with all its parts can make.
fn most_bytes(expression: &Expression) -> usize {
    let sum = |list: &[Expression]| list.iter().map(most_bytes).fold(0, usize::saturating_add);
    match expression {
        Expression::Literal(literal) => literal.value().len(),
        Expression::Variable(_) => MAX_TERM_BYTES,
        Expression::FunctionCall(Function::Replace, list) => {
            let factor = list.get(2).map_or(0, most_bytes).saturating_add(1);
            list.first()
                .map_or(0, most_bytes)
                .saturating_add(1)
                .saturating_mul(factor)
        }
        Expression::FunctionCall(Function::EncodeForUri, list) => sum(list).saturating_mul(3),
        Expression::FunctionCall(_, list) => sum(list).saturating_add(SMALL_BYTES),
        other => {
            let parts = parts(other).into_iter().map(most_bytes);
            parts.fold(SMALL_BYTES, usize::saturating_add)
        }
    }
}

/// The maximum number of bytes it makes beyond the terms it reads: literals, and functions that
/// multiply.
pub(crate) fn made_bytes(expression: &Expression) -> usize {
    let mut multiplies = false;
    let mut literals = 0_usize;
    visit(expression, &mut |part| match part {
        Expression::FunctionCall(Function::Replace | Function::EncodeForUri, _) => {
            multiplies = true;
        }
        Expression::Literal(literal) => literals = literals.saturating_add(literal.value().len()),
        _ => {}
    });
    if multiplies {
        most_bytes(expression)
    } else {
        literals.saturating_add(16)
    }
}

/// The predicate of a path that consists of one predicate, repeated or not.
pub(crate) fn only_predicate(path: &PropertyPathExpression) -> Option<NamedNode> {
    use PropertyPathExpression as P;
    match path {
        P::NamedNode(node) => Some(node.clone()),
        P::ZeroOrMore(inner) | P::OneOrMore(inner) | P::ZeroOrOne(inner) => only_predicate(inner),
        P::Reverse(_) | P::Sequence(..) | P::Alternative(..) | P::NegatedPropertySet(_) => None,
    }
}

/// A blank node of a pattern is an unnamed variable; this name is internal, and no query can write
/// it.
pub(crate) fn blank_variable(node: &BlankNode) -> Variable {
    Variable::new_unchecked(format!("blank-{}", node.as_str()))
}

/// Adds all variables that occur anywhere in the pattern.
pub(crate) fn pattern_variables(pattern: &GraphPattern, found: &mut HashSet<Variable>) {
    use GraphPattern as G;
    fn place(term: &TermPattern, found: &mut HashSet<Variable>) {
        match term {
            TermPattern::Variable(name) => {
                found.insert(name.clone());
            }
            TermPattern::BlankNode(node) => {
                found.insert(blank_variable(node));
            }
            TermPattern::NamedNode(_) | TermPattern::Literal(_) => {}
        }
    }
    match pattern {
        G::Bgp { patterns } => {
            for pattern in patterns {
                place(&pattern.subject, found);
                place(&pattern.object, found);
                if let NamedNodePattern::Variable(name) = &pattern.predicate {
                    found.insert(name.clone());
                }
            }
        }
        G::Path {
            subject, object, ..
        } => {
            place(subject, found);
            place(object, found);
        }
        G::Values { variables, .. } => found.extend(variables.iter().cloned()),
        G::Join { left, right }
        | G::Lateral { left, right }
        | G::Union { left, right }
        | G::Minus { left, right } => {
            pattern_variables(left, found);
            pattern_variables(right, found);
        }
        G::LeftJoin {
            left,
            right,
            expression,
        } => {
            pattern_variables(left, found);
            pattern_variables(right, found);
            found.extend(expression.iter().flat_map(variables));
        }
        G::Filter { expr, inner } => {
            found.extend(variables(expr));
            pattern_variables(inner, found);
        }
        G::Extend {
            inner,
            variable,
            expression,
        } => {
            found.insert(variable.clone());
            found.extend(variables(expression));
            pattern_variables(inner, found);
        }
        G::OrderBy { inner, expression } => {
            found.extend(
                expression
                    .iter()
                    .flat_map(|order| variables(of_order(order))),
            );
            pattern_variables(inner, found);
        }
        G::Project { inner, variables } => {
            found.extend(variables.iter().cloned());
            pattern_variables(inner, found);
        }
        G::Distinct { inner }
        | G::Reduced { inner }
        | G::Slice { inner, .. }
        | G::Service { inner, .. } => pattern_variables(inner, found),
        G::Graph { name, inner } => {
            if let NamedNodePattern::Variable(name) = name {
                found.insert(name.clone());
            }
            pattern_variables(inner, found);
        }
        G::Group {
            inner,
            variables: keys,
            aggregates,
        } => {
            found.extend(keys.iter().cloned());
            for (name, aggregate) in aggregates {
                found.insert(name.clone());
                if let AggregateExpression::FunctionCall { expr, .. } = aggregate {
                    found.extend(variables(expr));
                }
            }
            pattern_variables(inner, found);
        }
    }
}
