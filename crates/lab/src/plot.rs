//! The plotter of the laboratory: lines, points and bars over two axes, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
const COLOURS: [&str; 6] = [
    "#1668a8", "#c2571a", "#2b8a3e", "#7b4bb3", "#6b6b6b", "#000000",
];
/// More values than this above the bars of a plot could not be read.
const VALUES_MAX: usize = 40;

/// The division of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0 on.
    Linear,
    /// Logarithmic axis. Values of 0 and below are omitted.
    Logarithmic,
}

/// The style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Points joined in their order.
    Line,
    /// Points alone.
    Points,
    /// Points and the line that joins them.
    Both,
    /// A bar at each name of [`Plot::names`]; `x` counts these from 0.
    Bars,
}

/// Values under one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// The style.
    pub mark: Mark,
    /// Its points: `x` and `y`.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A series without points.
    #[must_use]
    pub fn new(name: impl Into<String>, mark: Mark) -> Self {
        let (name, points) = (name.into(), Vec::new());
        Self { name, mark, points }
    }

    /// The same with these points.
    #[must_use]
    pub fn with(mut self, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.points.extend(points);
        self
    }
}

/// Adds a point to the line with this name; creates the line if necessary.
pub fn add(lines: &mut Vec<Series>, name: &str, point: (f64, f64)) {
    match lines.iter_mut().find(|line| line.name == name) {
        Some(line) => line.points.push(point),
        None => lines.push(Series::new(name, Mark::Line).with([point])),
    }
}

/// A plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// Label of the horizontal axis, with its unit.
    pub x: &'static str,
    /// Label of the vertical axis, with its unit.
    pub y: &'static str,
    /// The scales of both.
    pub scales: [Scale; 2],
    /// Names along the bottom instead of numbers, for bars. A name may have several lines.
    pub names: Vec<String>,
    /// The series.
    pub series: Vec<Series>,
}

impl Plot {
    /// A plot of linear axes.
    #[must_use]
    pub fn new(title: impl Into<String>, x: &'static str, y: &'static str) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            scales: [Scale::Linear; 2],
            names: Vec::new(),
            series: Vec::new(),
        }
    }

    /// The same with these series.
    #[must_use]
    pub fn with(mut self, series: impl IntoIterator<Item = Series>) -> Self {
        self.series.extend(series);
        self
    }

    /// The plot as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let axes = match self.names.len() {
            0 => Axis::of(self.scales[0], all().map(|point| point.0)),
            names => Axis::names(names),
        };
        let axes = [axes, Axis::of(self.scales[1], all().map(|point| point.1))];
        let mut svg = String::new();
        self.frame(&axes, &mut svg);
        let bars = self.series.iter().filter(|it| it.mark == Mark::Bars);
        let (bars, mut bar) = (bars.count(), 0);
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let has_place = |point: &&(f64, f64)| axes[0].has(point.0) && axes[1].has(point.1);
            let points: Vec<_> = series.points.iter().filter(has_place).copied().collect();
            if series.mark == Mark::Bars {
                self.bars(&points, &axes, (bar, bars), colour, &mut svg);
                bar += 1;
            } else {
                marks(series.mark, &points, &axes, colour, &mut svg);
            }
            let (x, y) = (WIDTH - RIGHT + 12.0, TOP + 14.0 * number as f64);
            let (middle, text, name) = (y - 4.0, x + 8.0, escaped(&series.name));
            let _ = writeln!(
                svg,
                "<circle cx=\"{x}\" cy=\"{middle}\" r=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{text}\" y=\"{y}\">{name}</text>"
            );
        }
        svg + "</svg>\n"
    }

    /// Title, axis labels, grid and legend.
    fn frame(&self, axes: &[Axis; 2], svg: &mut String) {
        let (low, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let (title, x, y) = (escaped(&self.title), escaped(self.x), escaped(self.y));
        let (middle, up, last) = ((LEFT + end) / 2.0, (TOP + low) / 2.0, HEIGHT - 8.0);
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"11\">\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"13\">{title}</text>\
             <text x=\"{middle}\" y=\"{last}\" text-anchor=\"middle\">{x}</text>\
             <text x=\"14\" y=\"{up}\" transform=\"rotate(-90 14 {up})\" text-anchor=\"middle\">{y}</text>"
        );
        for tick in axes[1].ticks() {
            let (at, left, label) = (axes[1].y(tick), LEFT - 6.0, short(tick));
            let below = at + 4.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{end}\" stroke=\"#ddd\"/>\
                 <text x=\"{left}\" y=\"{below:.1}\" text-anchor=\"end\">{label}</text>"
            );
        }
        for (number, name) in self.names.iter().enumerate() {
            let at = axes[0].x(number as f64);
            for (line, words) in name.split('\n').enumerate() {
                let (y, words) = (low + 14.0 + 11.0 * line as f64, escaped(words));
                let _ = writeln!(
                    svg,
                    "<text x=\"{at:.1}\" y=\"{y}\" font-size=\"9\" text-anchor=\"middle\">{words}</text>"
                );
            }
        }
        let numbers = if self.names.is_empty() {
            axes[0].ticks()
        } else {
            Vec::new()
        };
        for tick in numbers {
            let (at, y, label) = (axes[0].x(tick), low + 15.0, short(tick));
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {TOP}V{low}\" stroke=\"#eee\"/>\
                 <text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>"
            );
        }
    }

    /// Bars of the series `bar` of `bars`, side by side at each name.
    fn bars(
        &self,
        points: &[(f64, f64)],
        axes: &[Axis; 2],
        (bar, bars): (usize, usize),
        colour: &str,
        svg: &mut String,
    ) {
        let width = (axes[0].x(1.0) - axes[0].x(0.0)) * 0.8 / bars.max(1) as f64;
        let has_values = self.names.len() * bars <= VALUES_MAX;
        for (place, value) in points {
            let x = axes[0].x(*place) + width * (bar as f64 - bars as f64 / 2.0);
            let (y, low) = (axes[1].y(*value), HEIGHT - BOTTOM);
            let height = low - y;
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {low}v-{height:.1}h{width:.1}v{height:.1}z\" fill=\"{colour}\"/>"
            );
            if has_values {
                let (x, y, value) = (x + width / 2.0, y - 3.0, short(*value));
                let _ = writeln!(
                    svg,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"9\" text-anchor=\"middle\">{value}</text>"
                );
            }
        }
    }
}

fn marks(mark: Mark, points: &[(f64, f64)], axes: &[Axis; 2], colour: &str, svg: &mut String) {
    let place = |(x, y): &(f64, f64)| format!("{:.1},{:.1}", axes[0].x(*x), axes[1].y(*y));
    if mark != Mark::Points {
        let points: Vec<_> = points.iter().map(place).collect();
        let points = points.join(" ");
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{points}\"/>"
        );
    }
    for (x, y) in points.iter().filter(|_| mark != Mark::Line) {
        let (x, y) = (axes[0].x(*x), axes[1].y(*y));
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
        );
    }
}

/// The range of an axis; logarithms on a logarithmic axis.
struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
}

impl Axis {
    fn of(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let finite = values.filter(|it| it.is_finite());
        let (from, to) = match scale {
            Scale::Linear => {
                let most = finite.fold(0.0, f64::max);
                (0.0, if most > 0.0 { most * 1.05 } else { 1.0 })
            }
            Scale::Logarithmic => {
                let logs: Vec<f64> = finite.filter(|it| *it > 0.0).map(f64::log10).collect();
                let least = logs.iter().copied().reduce(f64::min).unwrap_or(0.0).floor();
                let most = logs.iter().copied().reduce(f64::max).unwrap_or(0.0).ceil();
                (least, most.max(least + 1.0))
            }
        };
        Self { scale, from, to }
    }

    /// An axis with one slot per name.
    fn names(count: usize) -> Self {
        let (from, to) = (-0.5, count as f64 - 0.5);
        let scale = Scale::Linear;
        Self { scale, from, to }
    }

    fn has(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    fn share(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.log10(),
        };
        (value - self.from) / (self.to - self.from)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.share(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// Values with a line of the grid: quarters, or decades.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => (0..=4)
                .map(|step| self.to * f64::from(step) / 4.0)
                .collect(),
            Scale::Logarithmic => {
                let decades = (self.to - self.from) as i32;
                let decade = |step: i32| 10_f64.powf(self.from + f64::from(step));
                (0..=decades).map(decade).collect()
            }
        }
    }
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
        v if v >= 1e-3 => format!("{value:.3}"),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scales: [Scale; 2], series: impl IntoIterator<Item = Series>) -> Plot {
        Plot {
            scales,
            ..Plot::new("a < b", "offered", "received").with(series)
        }
    }

    #[test]
    fn a_plot_has_its_lines_and_leaves_out_what_is_no_number() {
        let lines = [
            Series::new("one", Mark::Line).with([(0.0, 0.0), (1e5, 3.0)]),
            Series::new("two", Mark::Line).with([(1.0, f64::NAN)]),
        ];
        let svg = of([Scale::Linear; 2], lines).svg();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b") && svg.contains(">one<") && svg.contains(">two<"));
        assert!(svg.contains("105k") && !svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 2);
    }

    #[test]
    fn every_point_is_there_and_what_has_no_logarithm_is_not() {
        let points = [
            Series::new("a", Mark::Both).with([(1.0, 2.0), (10.0, 0.0), (100.0, 0.5)]),
            Series::new("b", Mark::Points).with([(3.0, 3.0)]),
        ];
        let svg = of([Scale::Logarithmic; 2], points).svg();
        // A mark for each in the legend.
        assert_eq!(svg.matches("<circle").count(), 2 + 1 + 2);
        assert_eq!(svg.matches("<polyline").count(), 1);
    }

    #[test]
    fn each_name_has_a_bar_of_each_series() {
        let bars = [
            Series::new("x", Mark::Bars).with([(0.0, 1.0), (1.0, 2.0)]),
            Series::new("y", Mark::Bars).with([(0.0, 3.0)]),
        ];
        let plot = Plot {
            names: vec!["a".to_owned(), "b\nc".to_owned()],
            ..of([Scale::Linear; 2], bars)
        };
        let svg = plot.svg();
        assert_eq!(svg.matches("z\" fill").count(), 3);
        assert!(svg.contains(">b</text>") && svg.contains(">c</text>"));
    }

    #[test]
    fn a_plot_of_nothing_is_whole() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let svg = of([scale; 2], []).svg();
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }
}
