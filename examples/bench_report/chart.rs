//! What all pictures share: sizes, colours that read on a light and a dark page, axes.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::combinators::{LogCoord, WithKeyPoints};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::{
    BindKeyPoints as _, Cartesian2d, DrawingArea, IntoDrawingArea as _, IntoFont as _, IntoLogRange as _, RGBColor,
    SVGBackend,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, TRANSPARENT, TextStyle};

use super::input::Failure;

pub(crate) const WIDTH: u32 = 1080;

// A palette that colour-blind people can tell apart (Okabe and Ito), in the shades that have contrast on white and on black.
pub(crate) const BLUE: RGBColor = RGBColor(0x3b, 0x82, 0xc4);
pub(crate) const ORANGE: RGBColor = RGBColor(0xe0, 0x8e, 0x0b);
pub(crate) const GREEN: RGBColor = RGBColor(0x1a, 0x9e, 0x77);
pub(crate) const RED: RGBColor = RGBColor(0xd6, 0x52, 0x3c);
pub(crate) const PURPLE: RGBColor = RGBColor(0xb5, 0x6b, 0xa8);
pub(crate) const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
const BROWN: RGBColor = RGBColor(0x9a, 0x6b, 0x3f);
const GREY: RGBColor = RGBColor(0x8a, 0x8f, 0x98);
pub(crate) const PALETTE: [RGBColor; 8] = [BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BROWN, GREY];
/// Stands for the page's own text colour, see [`draw`].
pub(crate) const TEXT: RGBColor = RGBColor(0x01, 0x02, 0x03);

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

/// Puts the values of an axis into words.
pub(crate) type Labels<'a, T> = &'a dyn Fn(&T) -> String;

/// As CSS wants it.
pub(crate) fn css(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// Paints an SVG of [`WIDTH`] and `height` that takes over the text colour of the page.
pub(crate) fn draw(
    height: u32,
    paint: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String, Failure> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        paint(&area).map_err(|error| Failure(error.to_string()))?;
        area.present()?;
    }
    Ok(svg.replace(&css(TEXT), "currentColor"))
}

pub(crate) fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

pub(crate) fn text_at(size: i32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    text(size).pos(Pos::new(horizontal, vertical))
}

/// A chart with room for `left` pixels of labels.
pub(crate) fn builder<'a, 'b>(area: &'a Area<'b>, left: u32) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .margin_top(18)
        .margin_right(24)
        .margin_bottom(4)
        .x_label_area_size(46)
        .y_label_area_size(left);
    builder
}

/// A logarithmic axis with labels at 1, 2 and 5 of each decade.
pub(crate) fn log_range(range: std::ops::Range<f64>) -> WithKeyPoints<LogCoord<f64>> {
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let points = decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(decade)))
        .filter(|point| range.contains(point))
        .collect();
    range.log_scale().with_key_points(points)
}

/// Vertical lines at the labels of the x axis, and its description; no y axis.
pub(crate) fn rows_mesh<X, Y>(
    chart: &mut Chart<'_, '_, X, Y>,
    description: &str,
    labels: usize,
    format: Labels<'_, X::ValueType>,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: Ranged + ValueFormatter<X::ValueType> + AsRangedCoord<CoordDescType = X>,
    Y: Ranged + ValueFormatter<Y::ValueType> + AsRangedCoord<CoordDescType = Y>,
{
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc(description)
        .x_labels(labels)
        .x_label_formatter(format)
        .label_style(text(16))
        .axis_desc_style(text(16))
        .axis_style(TEXT.mix(0.5))
        .bold_line_style(TEXT.mix(0.15))
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(())
}

/// Both axes, with lines at the labels.
pub(crate) fn full_mesh<X, Y>(
    chart: &mut Chart<'_, '_, X, Y>,
    descriptions: (&str, &str),
    formats: (Labels<'_, X::ValueType>, Labels<'_, Y::ValueType>),
) -> Result<(), Box<dyn std::error::Error>>
where
    X: Ranged + ValueFormatter<X::ValueType> + AsRangedCoord<CoordDescType = X>,
    Y: Ranged + ValueFormatter<Y::ValueType> + AsRangedCoord<CoordDescType = Y>,
{
    chart
        .configure_mesh()
        .x_desc(descriptions.0)
        .y_desc(descriptions.1)
        .x_labels(11)
        .y_labels(8)
        .x_label_formatter(formats.0)
        .y_label_formatter(formats.1)
        .label_style(text(16))
        .axis_desc_style(text(16))
        .axis_style(TEXT.mix(0.5))
        .bold_line_style(TEXT.mix(0.13))
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(())
}

/// The name of a row, to the left of the chart at the height of `at`.
pub(crate) fn row_name<X, Y>(
    area: &Area<'_>,
    chart: &Chart<'_, '_, X, Y>,
    name: &str,
    left: X::ValueType,
    at: Y::ValueType,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: Ranged,
    Y: Ranged,
{
    let (x, y) = chart.backend_coord(&(left, at));
    area.draw_text(name, &text_at(16, HPos::Right, VPos::Center), (x - 8, y))?;
    Ok(())
}
