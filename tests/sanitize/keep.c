/* Preloaded under the address sanitizer. Keeps the libraries that Open MPI loads until the end: the
 * sanitizer cannot name a library that was unloaded, so no suppression would match its leaks. */
int dlclose(void *handle);
int dlclose(void *handle) {
    (void)handle;
    return 0;
}
