"""GPU Feature Discovery's labels: `features` makes them, `sinks` puts them where NFD or the scheduler finds them."""
