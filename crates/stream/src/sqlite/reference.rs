//! What the functions of statements do, for the reference.

/// A function, or several with the same description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// The group in the reference.
    pub group: &'static str,
    /// How it is called; several calls are separated by `; `.
    pub calls: &'static str,
    /// The result.
    pub result: &'static str,
}

const fn function(group: &'static str, calls: &'static str, result: &'static str) -> Function {
    Function {
        group,
        calls,
        result,
    }
}

const TIME: &str = "Time series";
const SUMS: &str = "Aggregates";
const WINDOWS: &str = "Window functions";
const UNITS: &str = "Units and positions";
const NUMBERS: &str = "Mathematics";
const TEXTS: &str = "Texts";
const NULLS: &str = "Nulls, types and conditions";
const DATES: &str = "Dates";
const JSON: &str = "JSON";

/// All functions that a statement may call, by groups. A test compares them with those that are allowed.
pub const FUNCTIONS: &[Function] = &[
    function(
        TIME,
        "time_bucket(width, time [, origin])",
        "start of the bucket that contains `time`, in nanoseconds since 1970; the width is a number of nanoseconds or a text such as `'15 m'`",
    ),
    function(
        TIME,
        "first(value [, time]); last(value [, time])",
        "value at the least or greatest time; without `time`, by order of arrival",
    ),
    function(
        TIME,
        "delta(value [, time])",
        "last value minus first value; null if there are fewer than two",
    ),
    function(
        TIME,
        "rate(value, time)",
        "increase of a counter per second; a value below the previous one is a restart from 0",
    ),
    function(
        TIME,
        "interpolate(value, time, at)",
        "value at `at` on the line between the nearest rows before and after it; null if one is missing",
    ),
    function(
        TIME,
        "lttb(value, time, points)",
        "at most `points` (3 to 10,000) of the points, selected to keep the shape of the line, as JSON: \
            `[[time,value],…]`",
    ),
    function(
        SUMS,
        "count(*); count(value)",
        "number of rows, or of values that are not null",
    ),
    function(
        SUMS,
        "sum(value); total(value); avg(value)",
        "as in SQLite, but sums are exact and rounded once, so the order of the rows does not matter",
    ),
    function(
        SUMS,
        "min(value); max(value)",
        "least and greatest value; of several arguments, the least and greatest of them",
    ),
    function(
        SUMS,
        "stddev(value); stddev_samp(value); variance(value); var_samp(value)",
        "standard deviation and variance of a sample; null for fewer than two numbers",
    ),
    function(
        SUMS,
        "stddev_pop(value); var_pop(value)",
        "standard deviation and variance of a population; null without numbers",
    ),
    function(
        SUMS,
        "group_concat(value [, separator]); string_agg(value, separator)",
        "the values as one text",
    ),
    function(
        WINDOWS,
        "row_number(); rank(); dense_rank(); percent_rank(); cume_dist(); ntile(n)",
        "number or rank of the row in its window, as in SQLite",
    ),
    function(
        WINDOWS,
        "lag(value [, rows [, default]]); lead(value [, rows [, default]])",
        "value of an earlier or later row",
    ),
    function(
        WINDOWS,
        "first_value(value); last_value(value); nth_value(value, n)",
        "value of the first, last or nth row of the window frame",
    ),
    function(
        UNITS,
        "in_unit(column, unit); in_unit(value, from, to)",
        "number in another unit; units are UCUM codes such as `'Cel'`",
    ),
    function(
        UNITS,
        "nmea(sentence, value)",
        "a value of a GPS sentence (GGA, RMC, GLL): `'latitude'`, `'longitude'`, `'altitude'`, `'satellites'`, `'hdop'`, `'speed'` (m/s), `'course'`; null without a fix or with a wrong checksum",
    ),
    function(
        NUMBERS,
        "abs(x); sign(x); round(x [, digits]); floor(x); ceil(x); mod(x, y)",
        "absolute value, sign, rounding, remainder",
    ),
    function(
        NUMBERS,
        "sqrt(x); exp(x); ln(x); log10(x); pow(x, y); power(x, y)",
        "roots, logarithms and powers; null for arguments that are not numbers",
    ),
    function(
        NUMBERS,
        "sin(x); cos(x); tan(x); asin(x); acos(x); atan(x); atan2(y, x); degrees(x); radians(x); pi()",
        "trigonometry, in radians",
    ),
    function(
        TEXTS,
        "length(text); octet_length(text); lower(text); upper(text); unicode(text); char(code, …); hex(bytes); quote(value)",
        "as in SQLite",
    ),
    function(
        TEXTS,
        "substr(text, from [, length]); substring(text, from [, length]); instr(text, part); locate(part, text [, from])",
        "part of a text, and position of a part, from 1; 0 if it is not there",
    ),
    function(
        TEXTS,
        "replace(text, old, new); trim(text [, set]); ltrim(text [, set]); rtrim(text [, set])",
        "as in SQLite; a set has at most 64 characters",
    ),
    function(
        TEXTS,
        "concat(value, …); concat_ws(separator, value, …); format(pattern, value, …); printf(pattern, value, …)",
        "concatenated or formatted texts, as in SQLite",
    ),
    function(
        TEXTS,
        "like(pattern, text); glob(pattern, text)",
        "the operators `LIKE` and `GLOB` as functions",
    ),
    function(
        NULLS,
        "coalesce(value, …); ifnull(value, other); nullif(value, other)",
        "first value that is not null; null if both are equal",
    ),
    function(
        NULLS,
        "iif(condition, then [, else]); if(condition, then [, else])",
        "value by a condition",
    ),
    function(
        NULLS,
        "typeof(value)",
        "`'null'`, `'integer'`, `'real'`, `'text'` or `'blob'`",
    ),
    function(
        NULLS,
        "likely(x); unlikely(x); likelihood(x, p)",
        "`x`; a hint for the planner of SQLite",
    ),
    function(
        DATES,
        "date(time, …); time(time, …); datetime(time, …); julianday(time, …); unixepoch(time, …); strftime(format, time, …)",
        "as in SQLite; for a column in nanoseconds: `datetime(source_time / 1000000000, 'unixepoch')`",
    ),
    function(
        DATES,
        "current_date; current_time; current_timestamp",
        "the system's clock at the evaluation",
    ),
    function(
        DATES,
        "datediff(unit, from, to); timestampdiff(unit, from, to); datediff(to, from)",
        "boundaries of the unit between two times, in milliseconds since 1970 or as texts; with two arguments, days. A unit is `'millisecond'`, `'second'`, `'minute'`, `'hour'`, `'day'`, `'month'` or `'year'`",
    ),
    function(
        DATES,
        "unix_timestamp(time)",
        "seconds since 1970 of a time in milliseconds since 1970, or of a text",
    ),
    function(
        JSON,
        "json_extract(text, path, …); ->(text, path); ->>(text, path)",
        "part of a JSON text; `->` and `->>` are operators: `text -> path`",
    ),
    function(
        JSON,
        "json_array(value, …); json_object(name, value, …); json_group_array(value)",
        "JSON from values, the last as an aggregate",
    ),
    function(
        JSON,
        "json_array_length(text [, path]); json_type(text [, path]); json_valid(text)",
        "as in SQLite",
    ),
];

impl Function {
    /// The names of its calls.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let calls = self.calls.split("; ");
        calls.map(|call| call.split('(').next().unwrap_or(call))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::sandbox;
    use super::*;

    #[test]
    fn exactly_the_allowed_functions_are_described() {
        let described: BTreeSet<_> = FUNCTIONS.iter().flat_map(Function::names).collect();
        let allowed: BTreeSet<_> = sandbox::FUNCTIONS.iter().copied().collect();
        assert_eq!(described, allowed);
    }
}
