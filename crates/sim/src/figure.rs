//! Lines over a common axis, as SVG: enough for a figure of a study, no more.

use std::fmt::Write;

/// A named line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name, shown beside its end.
    pub name: String,
    /// Its points: x and y, by x.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 46.0;
const COLOURS: [&str; 5] = ["#1668a8", "#c2571a", "#2b8a3e", "#7b4bb3", "#6b6b6b"];

/// A figure of lines. `x` and `y` name the axes with their units; both begin at 0.
#[must_use]
pub fn figure(title: &str, x: &str, y: &str, lines: &[Series]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = |values: &mut dyn Iterator<Item = f64>| {
        let most = values.filter(|it| it.is_finite()).fold(0.0, f64::max);
        if most > 0.0 { most * 1.05 } else { 1.0 }
    };
    let x_most = most(&mut points().map(|point| point.0));
    let y_most = most(&mut points().map(|point| point.1));
    let x_at = |value: f64| LEFT + value / x_most * (WIDTH - LEFT - RIGHT);
    let y_at = |value: f64| HEIGHT - BOTTOM - value / y_most * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    for tick in 0..=4 {
        let share = f64::from(tick) / 4.0;
        let (across, up) = (x_at(x_most * share), y_at(y_most * share));
        let (end, low) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {up:.1}H{end}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <text x=\"{across:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            LEFT - 6.0,
            up + 4.0,
            short(y_most * share),
            low + 16.0,
            short(x_most * share)
        );
    }
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let mut path = String::new();
        let finite = |point: &(f64, f64)| point.0.is_finite() && point.1.is_finite();
        for (x, y) in line.points.iter().filter(|point| finite(point)) {
            let pen = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{pen}{:.1} {:.1}", x_at(*x), y_at(*y));
        }
        let last = line.points.iter().rev().find(|point| finite(point));
        let end = last.map_or(TOP, |(_, y)| y_at(*y));
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            WIDTH - RIGHT + 6.0,
            end + 4.0,
            escaped(&line.name)
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = write!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"16\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {})\">{}</text>\n\
         </svg>\n",
        HEIGHT - 8.0,
        escaped(x),
        HEIGHT / 2.0,
        HEIGHT / 2.0,
        escaped(y)
    );
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A number with about three digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1e6 => format!("{:.1}M", value / 1e6),
        v if v >= 1e4 => format!("{:.0}k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_well_formed_and_has_its_lines() {
        let line = |name: &str, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let svg = figure(
            "a < b",
            "offered",
            "received",
            &[
                line("one", &[(0.0, 0.0), (1e5, 3.0)]),
                line("two", &[(1.0, f64::NAN)]),
            ],
        );
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b") && svg.contains(">one<") && svg.contains(">two<"));
        assert!(svg.contains("105k") && !svg.contains("NaN"), "{svg}");
    }
}
