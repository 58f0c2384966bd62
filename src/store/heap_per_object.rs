//! What objects cost on the heap: in a delta a small fixed number of bytes each, on a shelf none.

use std::hint::black_box;
use std::sync::Arc;

use allocation_counter::measure;

use super::fixture::{Fixture, object};
use super::resource_view::ResourceView;
use super::shelf_set::{Part, ShelfSet};
use super::{Range, Requirement, Selection};

const RESOURCE: &str = "things";

/// `count` objects with 5 labels and 5 fields as Pods have them, written in no order.
fn filled(count: usize) -> Fixture {
    let mut fixture = Fixture::new(128 << 20);
    for step in 0..count {
        let number = step * 7_919 % count;
        let key = format!("ns-{}/object-{number:06}", number % 50);
        let hash = format!("{number:08x}");
        let node = format!("node-{}", number % 500);
        let labels = [
            ("app", "web"),
            ("hash", &hash),
            ("pick", "no"),
            ("tier", "front"),
            ("version", "v1"),
        ];
        let fields = [
            ("spec.nodeName", node.as_str()),
            ("spec.restartPolicy", "Always"),
            ("spec.schedulerName", "default"),
            ("spec.serviceAccountName", "default"),
            ("status.phase", "Running"),
        ];
        fixture.put(RESOURCE, &key, &object(&key, &labels, &fields, 0));
    }
    fixture
}

#[test]
fn a_key_in_a_delta_costs_about_a_hundred_bytes() {
    let count = 6_000;
    let fixture = filled(count);
    let mut resource = ResourceView::default();
    let used = measure(|| {
        for &(_, _, at) in &fixture.records {
            resource.apply(&fixture.view.log, at).unwrap();
        }
    });
    let per_key = used.bytes_current as f64 / count as f64;
    println!("{per_key:.1} bytes of heap for each key of a delta");
    assert!((60.0..120.0).contains(&per_key), "{per_key} bytes");
    assert_eq!(resource.delta_len(), count);
}

#[test]
fn shelved_objects_cost_nothing_on_the_heap() {
    let heap = |count: usize| {
        let mut fixture = filled(count);
        fixture.shelve_all(RESOURCE, 10_000);
        let parts: Vec<_> = fixture.view.resource(RESOURCE).unwrap().shelf.parts().to_vec();
        let log = fixture.view.log.clone();
        let mut view = None;
        let opened = measure(|| {
            let open =
                |part: &Arc<Part>| Arc::new(Part::open(part.manifest_entry().clone(), Arc::clone(part.map())).unwrap());
            fixture.view.resource_mut(RESOURCE).install(
                &log,
                ShelfSet::from_parts(parts.iter().map(open).collect()),
                1,
            );
            view = Some(Arc::new(fixture.view.clone()));
        });
        let view = view.unwrap();
        let label = |name: &str, value: &str| Requirement::LabelIn {
            name: name.into(),
            values: vec![value.into()],
        };
        let none = Selection {
            requirements: vec![Requirement::LabelNotIn {
                name: "app".into(),
                values: vec![],
            }],
        };
        let both = Selection {
            requirements: vec![label("app", "web"), label("tier", "front")],
        };
        let read = measure(|| {
            for selection in [&Selection::all(), &none, &both] {
                let mut listing = view.list(RESOURCE, Range::default(), selection);
                let mut found = 0;
                while let Some(run) = listing.next(100).unwrap() {
                    found += run
                        .objects()
                        .map(|object| black_box(object.json().unwrap().len().min(1)))
                        .sum::<usize>();
                }
                assert_eq!(found, count);
            }
        });
        (opened.bytes_current, read.count_total, read.bytes_max)
    };
    let ((small, few, _), (large, many, held)) = (heap(500), heap(5_000));
    // A bit for each 64 KiB is all that may grow.
    assert!(large <= small + 64, "{large} bytes for 5,000 objects, {small} for 500");
    assert_eq!(few, many, "allocations of three lists");
    assert!(held < 8_192, "{held} bytes of heap for lists");
}
