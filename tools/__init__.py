"""Programs for developers that are not part of the package: generators of documentation pages."""
