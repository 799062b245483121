// A shared library that has folio's file name and is no plugin.
extern "C" int folio_something_else() {
  return 0;
}
