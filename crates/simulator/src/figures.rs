//! Line charts as SVG.

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement};
use plotters::series::{DashedLineSeries, LineSeries, PointSeries};
use plotters::style::{BLACK, Color, IntoFont, RGBColor, WHITE};

/// Size of a chart, in pixels.
const WIDTH: u32 = 480;
const HEIGHT: u32 = 380;
/// Charts beside each other.
const COLUMNS: usize = 3;
/// Told apart by most eyes (Okabe and Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// Charts of one file.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name of its file, without the extension.
    pub name: String,
    /// Never empty.
    pub charts: Vec<Chart>,
}

/// Lines over one axis.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What is on the axis to the right, with its unit.
    pub x: String,
    /// What is on the axis upwards, with its unit. The axis begins at zero.
    pub y: String,
    /// What was measured.
    pub lines: Vec<Line>,
    /// What it is held against, drawn dashed.
    pub levels: Vec<(String, f64)>,
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    /// As the text of an SVG file.
    pub fn to_svg(&self) -> String {
        let columns = self.charts.len().clamp(1, COLUMNS);
        let rows = self.charts.len().div_ceil(columns).max(1);
        let mut svg = String::new();
        {
            let size = (WIDTH * columns as u32, HEIGHT * rows as u32);
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let drawn = root.fill(&WHITE).and_then(|()| {
                let cells = root.split_evenly((rows, columns));
                self.charts.iter().zip(&cells).try_for_each(|(chart, cell)| chart.draw(cell))
            });
            drawn.and_then(|()| root.present()).expect("a string takes every shape");
        }
        svg
    }
}

type Cell<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Chart {
    /// These lines over `x`, held against nothing.
    pub fn new(
        title: impl Into<String>,
        x: impl Into<String>,
        y: impl Into<String>,
        lines: Vec<Line>,
    ) -> Chart {
        Chart { title: title.into(), x: x.into(), y: y.into(), lines, levels: Vec::new() }
    }

    /// The same, held against one level more.
    pub fn with_level(mut self, name: impl Into<String>, level: f64) -> Chart {
        self.levels.push((name.into(), level));
        self
    }

    fn draw(&self, cell: &Cell<'_>) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let points = || {
            self.lines.iter().flat_map(|line| &line.points).filter(|(x, y)| x.is_finite() && y.is_finite())
        };
        let xs = points().map(|&(x, _)| x);
        let (left, right) = (xs.clone().fold(f64::INFINITY, f64::min), xs.fold(f64::NEG_INFINITY, f64::max));
        // A single load has no width, and no point at all no place.
        let (left, right) = if left < right {
            (left, right)
        } else if left.is_finite() {
            (left - 0.1, left + 0.1)
        } else {
            (0.0, 1.0)
        };
        let ys = points().map(|&(_, y)| y).chain(self.levels.iter().map(|&(_, level)| level));
        // Room above for the legend.
        let entries = (self.lines.len() + self.levels.len()) as f64;
        let top = ys.fold(0.0, f64::max) * (1.05 + 0.07 * entries);
        let top = if top > 0.0 { top } else { 1.0 };
        let mut chart = ChartBuilder::on(cell)
            .caption(&self.title, ("sans-serif", 16).into_font())
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(52)
            .build_cartesian_2d(left..right, 0.0..top)?;
        let mesh = &mut chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).light_line_style(WHITE.mix(0.0)).draw()?;
        for (line, color) in self.lines.iter().zip(COLORS.iter().cycle()) {
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
            chart.draw_series(PointSeries::<_, _, Circle<_, _>, _>::new(
                line.points.iter().copied(),
                2,
                color.filled(),
            ))?;
        }
        for (name, level) in &self.levels {
            let ends = [(left, *level), (right, *level)];
            chart
                .draw_series(DashedLineSeries::new(ends, 5, 4, BLACK.stroke_width(1)))?
                .label(name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLACK.stroke_width(1)));
        }
        let labels = &mut chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8)).draw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(points: Vec<(f64, f64)>) -> Figure {
        let line = Line { name: "bouncer".into(), points };
        let chart = Chart::new("rejections", "load", "%", vec![line]).with_level("objective", 18.0);
        Figure { name: "f".into(), charts: vec![chart.clone(), chart.clone(), chart.clone(), chart] }
    }

    #[test]
    fn a_figure_shows_its_lines_and_names() {
        let svg = figure(vec![(0.9, 1.0), (1.0, 7.0), (1.5, 30.0)]).to_svg();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for part in ["bouncer", "objective", "rejections", "polyline"] {
            assert_eq!(svg.matches(part).count() % 4, 0, "{part}");
            assert!(svg.contains(part), "{part}");
        }
    }

    #[test]
    fn degenerate_data_still_draws() {
        for points in [vec![], vec![(1.0, 0.0)], vec![(1.0, f64::NAN), (2.0, 3.0)]] {
            assert!(figure(points).to_svg().contains("rejections"));
        }
    }
}
