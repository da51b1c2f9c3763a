#!/bin/sh
echo up
