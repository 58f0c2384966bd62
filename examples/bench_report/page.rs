//! The page around the pictures: HTML with everything in it, nothing fetched.

use std::fmt::Write as _;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, 'DejaVu Sans', sans-serif; max-width: 1120px; margin: 2rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin-bottom: .25rem; }
h2 { font-size: 1.2rem; margin: 2.75rem 0 .25rem; padding-top: .75rem; border-top: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
p { margin: .35rem 0 .75rem; max-width: 62rem; }
.environment { font-size: .85rem; opacity: .75; margin: .15rem 0; }
svg { display: block; width: 100%; height: auto; margin: .5rem 0; }
details { margin: .5rem 0 1rem; }
summary { cursor: pointer; font-size: .9rem; opacity: .8; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; margin-top: .5rem; white-space: nowrap; }
th, td { padding: .2rem .55rem; text-align: right; border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); }
th { font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tbody tr:hover { background: color-mix(in srgb, currentColor 6%, transparent); }
.keys { font-size: .85rem; display: flex; flex-wrap: wrap; gap: .25rem 1.2rem; margin: .4rem 0; }
.keys i { display: inline-block; width: 1.1em; height: .7em; margin-right: .45em; border-radius: 2px; }
";

/// A growing page.
pub(crate) struct Page(String);

/// The rows beneath a picture.
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl Page {
    /// `environments`: where and when the figures were taken.
    pub(crate) fn new(environments: &[String]) -> Self {
        let mut text = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>flatkube: measured</title><style>{STYLE}</style></head><body>\n<h1>flatkube: measured</h1>\n"
        );
        for environment in environments {
            let _ = writeln!(text, "<p class=\"environment\">{}</p>", escaped(environment));
        }
        Self(text)
    }

    /// A heading, what the picture shows, its keys (colour and name), the picture, and its figures.
    pub(crate) fn section(&mut self, title: &str, text: &str, keys: &[(&str, String)], svg: &str, table: &Table) {
        let page = &mut self.0;
        let _ = writeln!(page, "<h2>{}</h2>\n<p>{}</p>", escaped(title), escaped(text));
        if !keys.is_empty() {
            page.push_str("<div class=\"keys\">");
            for (colour, name) in keys {
                let _ = write!(
                    page,
                    "<span><i style=\"background:{colour}\"></i>{}</span>",
                    escaped(name)
                );
            }
            page.push_str("</div>\n");
        }
        page.push_str(svg);
        page.push_str("<details open><summary>The figures</summary><div class=\"scroll\"><table><thead><tr>");
        for cell in &table.head {
            let _ = write!(page, "<th>{}</th>", escaped(cell));
        }
        page.push_str("</tr></thead><tbody>\n");
        for row in &table.rows {
            page.push_str("<tr>");
            for cell in row {
                let _ = write!(page, "<td>{}</td>", escaped(cell));
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</tbody></table></div></details>\n");
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</body></html>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
