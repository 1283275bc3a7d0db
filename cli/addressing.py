"""From what a person wrote to what the writing side takes: a path, or an object-store address."""

from rankscope.schema.errors import NotARun, UnreadableFile


def address_of(run: str, *, is_to_seal: bool = False) -> str:
    """Where the run called `run` lies.

    is_to_seal: it may have no directory yet, only leftovers on this machine; but what is there must be of some use.
    Raises NotARun, UnreadableFile (no permission, nothing readable) or NewerOntology (in any file).
    """
    from rankscope.analyzers.listing import list_run
    from rankscope.analyzers.place import locate
    from rankscope.schema.leftovers import find_leftovers

    place = locate(run)
    if place.is_there:
        listing = list_run(place)
        if is_to_seal and listing.faults and not (listing.sealed or listing.streams):
            raise UnreadableFile(
                f"{place.address}: no file of it can be read; {listing.faults[0].path}: {listing.faults[0].reason}"
            )
    elif not (is_to_seal and place.is_local and find_leftovers(place.root)):
        raise NotARun(f"{place.address}: no such run")
    return place.root if place.is_local else place.address
