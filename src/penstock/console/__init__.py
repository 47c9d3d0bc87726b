"""The console: a web page for looking at a cluster and changing it, which speaks the HTTP API.

    web/index.html      the document of every path below /console/
    web/app.js          routes and the frame around each page
    web/pages/          one module for each page
    web/lib/            what pages are made of: signals, elements, the table, the chart, calls of the API
    web/style/          colours, spacing, and the few shared classes

`assets.py` reads these files once, with the first request, and `gateway/http/console.py` serves them.
"""
