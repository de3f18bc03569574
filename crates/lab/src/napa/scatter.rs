//! Points on logarithmic axes: throughput to the right, latency upwards, a colour for each kind of
//! pacer.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 46.0;
const COLOURS: [&str; 6] = [
    "#6b6b6b", "#1668a8", "#2b8a3e", "#7b4bb3", "#c2571a", "#000000",
];

/// Points of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kind {
    pub(super) name: String,
    /// Both above 0.
    pub(super) points: Vec<(f64, f64)>,
    /// Whether they are joined, in their order.
    pub(super) line: bool,
}

/// The decades around some values.
fn decades(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let logs: Vec<f64> = values
        .filter(|it| it.is_finite() && *it > 0.0)
        .map(f64::log10)
        .collect();
    let least = logs.iter().copied().reduce(f64::min)?.floor();
    let most = logs.iter().copied().reduce(f64::max)?.ceil();
    Some((least, most.max(least + 1.0)))
}

/// The figure; `x` and `y` name the axes with their units.
pub(super) fn scatter(title: &str, x: &str, y: &str, kinds: &[Kind]) -> String {
    let all = || kinds.iter().flat_map(|kind| kind.points.iter());
    let (Some(across), Some(up)) = (decades(all().map(|it| it.0)), decades(all().map(|it| it.1)))
    else {
        return String::from("<svg xmlns=\"http://www.w3.org/2000/svg\"/>");
    };
    let x_at = |value: f64| {
        LEFT + (value.log10() - across.0) / (across.1 - across.0) * (WIDTH - LEFT - RIGHT)
    };
    let y_at = |value: f64| {
        HEIGHT - BOTTOM - (value.log10() - up.0) / (up.1 - up.0) * (HEIGHT - TOP - BOTTOM)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\"><rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/><text x=\"{LEFT}\" y=\"20\" font-size=\"13\">{title}</text>"
    );
    let (low, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let mut decade = across.0;
    while decade <= across.1 {
        let (at, label) = (x_at(10_f64.powf(decade)), 10_f64.powf(decade));
        let _ = write!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{low}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            low + 15.0
        );
        decade += 1.0;
    }
    decade = up.0;
    while decade <= up.1 {
        let (at, label) = (y_at(10_f64.powf(decade)), 10_f64.powf(decade));
        let _ = write!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{end}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            at + 4.0
        );
        decade += 1.0;
    }
    let _ = write!(
        svg,
        "<text x=\"{:.0}\" y=\"{}\" text-anchor=\"middle\">{x}</text>\
         <text x=\"14\" y=\"{:.0}\" transform=\"rotate(-90 14 {:.0})\" text-anchor=\"middle\">{y}</text>",
        (LEFT + end) / 2.0,
        HEIGHT - 10.0,
        (TOP + low) / 2.0,
        (TOP + low) / 2.0
    );
    for (number, kind) in kinds.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let finite = |point: &&(f64, f64)| point.0 > 0.0 && point.1 > 0.0;
        let places = kind
            .points
            .iter()
            .filter(finite)
            .map(|(x, y)| (x_at(*x), y_at(*y)));
        let places: Vec<_> = places.collect();
        if kind.line {
            let points: Vec<_> = places
                .iter()
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let points = points.join(" ");
            let _ = write!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{points}\"/>"
            );
        }
        for (x, y) in places {
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
        let (x, y) = (end + 12.0, TOP + 14.0 * number as f64);
        let name = &kind.name;
        let _ = write!(
            svg,
            "<circle cx=\"{x}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{y:.1}\">{name}</text>",
            y - 4.0,
            x + 8.0
        );
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_there_and_what_has_no_logarithm_is_not() {
        let kind = |name: &str, points: &[(f64, f64)], line| Kind {
            name: name.to_owned(),
            points: points.to_vec(),
            line,
        };
        let kinds = [
            kind("a", &[(1.0, 2.0), (10.0, 0.0), (100.0, 0.5)], true),
            kind("b", &[(3.0, 3.0)], false),
        ];
        let figure = scatter("t", "x", "y", &kinds);
        assert_eq!(figure.matches("<circle").count(), 2 + 1 + 2);
        assert_eq!(figure.matches("<polyline").count(), 1);
        assert!(scatter("t", "x", "y", &[]).ends_with("/>"));
    }
}
